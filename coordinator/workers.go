package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// workerList lists who is alive, and who has orders though it is not.
func (c *Coordinator) workerList(ctx context.Context, _ caller, _ client.Head) (*client.WorkerListReply, *client.Position, error) {
	listed, err := c.cfg.Log.Liveness().List(ctx)
	if err != nil {
		return nil, nil, err
	}
	orders, err := c.cfg.Log.AllOrders(ctx)
	if err != nil {
		return nil, nil, err
	}
	names := maps.Clone(listed)
	for name, o := range orders {
		if known, err := client.ReadOrder(o.Value); err != nil || known.State != client.WorkerReady {
			names[name] = stream.Setting{}
		}
	}
	reply := client.WorkerListReply{Workers: make([]client.WorkerSummary, 0, len(names))}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		reply.Workers = append(reply.Workers, c.worker(name, listed, orders[name].Value))
	}
	return &reply, nil, nil
}

// worker is one worker as listings show it.
func (c *Coordinator) worker(name string, listed map[string]stream.Setting, order []byte) client.WorkerSummary {
	out := client.WorkerSummary{Name: name, Sessions: []session.ID{}}
	if len(order) > 0 {
		o, _ := client.ReadOrder(order) // what cannot be read is a cordon
		out.Order = &o
	}
	value, ok := listed[name]
	if !ok {
		return out
	}
	a := client.ReadAlive(map[string][]byte{name: value.Value})[name]
	out.Alive, out.State = true, a.State
	if a.State == "" {
		out.State = client.WorkerReady // an earlier build's, which obeys nobody
	}
	out.Incarnation, out.Version, out.Since, out.Lease, out.Concurrency = a.Incarnation, a.Version, a.Since, a.Lease, a.Concurrency
	out.Renewed = max(c.cfg.Now().Sub(value.Time), 0).Milliseconds()
	out.Tier, out.Enforcement, out.Labels, out.Workspaces = a.Tier, a.Enforcement, a.Labels, a.Workspaces
	out.Revision, out.Waits = a.Revision, a.Waits
	for _, claim := range a.Claims {
		out.Sessions = append(out.Sessions, claim.Session)
	}
	slices.Sort(out.Sessions)
	return out
}

// workerSet orders a state of a worker by its name, and answers once the worker says
// that it obeys, or after a lease of it. Every order is kept, with who and when.
func (c *Coordinator) workerSet(ctx context.Context, who caller, in client.WorkerSetRequest) (*client.WorkerSetReply, *client.Position, error) {
	order := client.WorkerOrder{State: in.State, Grace: in.Grace, Reason: in.Reason, By: who.party, At: c.now()}
	if err := checkOrder(in.Worker, order); err != nil {
		return nil, nil, err
	}
	revision, err := c.order(ctx, in.Worker, order)
	if err != nil {
		return nil, nil, err
	}
	if err := c.cfg.Log.PokeOrders(in.Worker); err != nil {
		c.cfg.Logger.Debug("poke", slog.String("worker", in.Worker), slog.Any("error", err))
	}
	const look = 50 * time.Millisecond
	for since := time.Now(); ; {
		listed, err := c.cfg.Log.Liveness().List(ctx)
		if err != nil {
			return nil, nil, err
		}
		value, live := listed[in.Worker]
		a := client.ReadAlive(map[string][]byte{in.Worker: value.Value})[in.Worker]
		confirmed := !live || a.Orders >= revision
		if confirmed || time.Since(since) > min(time.Duration(a.Lease), longest/2) || !delay.For(ctx, look) {
			stored, err := json.Marshal(order)
			if err != nil {
				return nil, nil, fmt.Errorf("encode an order: %w", err)
			}
			return &client.WorkerSetReply{Worker: c.worker(in.Worker, listed, stored), Confirmed: confirmed}, nil, nil
		}
	}
}

// workerHistory lists what was ordered of a worker.
func (c *Coordinator) workerHistory(ctx context.Context, _ caller, in client.WorkerRequest) (*client.WorkerHistoryReply, *client.Position, error) {
	if err := checkWorker(in.Worker); err != nil {
		return nil, nil, err
	}
	revisions, err := c.cfg.Log.Orders(in.Worker).History(ctx)
	if err != nil {
		return nil, nil, err
	}
	reply := client.WorkerHistoryReply{Orders: make([]client.WorkerOrder, 0, len(revisions))}
	for _, r := range revisions {
		o, _ := client.ReadOrder(r.Value) // what cannot be read is a cordon, and says so
		reply.Orders = append(reply.Orders, o)
	}
	return &reply, nil, nil
}

// order stores an order unless it stands already, and returns its revision.
func (c *Coordinator) order(ctx context.Context, worker string, order client.WorkerOrder) (uint64, error) {
	stored, err := json.Marshal(order)
	if err != nil {
		return 0, fmt.Errorf("encode an order: %w", err)
	}
	for {
		value, last, err := c.cfg.Log.Orders(worker).Load(ctx)
		if err != nil {
			return 0, err
		}
		was, bad := client.ReadOrder(value)
		if last > 0 && bad == nil && was.State == order.State && was.Grace == order.Grace && was.Reason == order.Reason || bytes.Equal(value, stored) {
			return last, nil
		}
		made, err := c.cfg.Log.Orders(worker).Update(ctx, stored, last)
		if !errors.Is(err, stream.ErrRevision) {
			return made, err
		}
	}
}

func checkWorker(worker string) error {
	if worker == "" || len(worker) > session.MaxName || strings.ContainsFunc(worker, func(r rune) bool {
		return r > unicode.MaxASCII || unicode.IsControl(r) || strings.ContainsRune(" .*>", r)
	}) {
		return invalid("worker %q is no name: give one word, as `entail worker ls` shows it", worker)
	}
	return nil
}

func checkOrder(worker string, order client.WorkerOrder) error {
	if err := checkWorker(worker); err != nil {
		return err
	}
	if err := order.Orders(); err != nil {
		return invalid("%v", err)
	}
	return checkReason(order.Reason)
}
