package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// services measures a delegation through the coordinator against an empty micro
// service that makes the same publish. Both are asked by a worker.
func services(ctx context.Context, g *ground, s scale, tell func(Figure)) (err error) {
	c, err := g.coordinate(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	worker, err := g.connect(broker.Worker, "w1")
	if err != nil {
		return err
	}
	defer worker.Close()
	log, err := g.log()
	if err != nil {
		return err
	}
	empty := &rawService{conn: g.conn}
	subject := client.SubjectWorker + "w1.raw"
	svc, err := empty.serve(ctx, subject)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, svc.Stop()) }()
	api := client.New(worker, client.Config{Worker: "w1"})
	deployment, err := currentSettings(ctx, log)
	if err != nil {
		return err
	}
	n := s.of(800)
	f, err := compare("delegation through the service", 0.7, n,
		func(n int) (time.Duration, error) {
			shelf, err := newRawShelf(ctx, log, n)
			if err != nil {
				return 0, err
			}
			empty.shelf.Store(shelf)
			like, err := newBook(ctx, log, 1)
			if err != nil {
				return 0, err
			}
			in, err := like.request(deployment)
			if err != nil {
				return 0, err
			}
			request, err := json.Marshal(in)
			if err != nil {
				return 0, err
			}
			if err := c.settle(ctx, log); err != nil {
				return 0, err
			}
			return spread(1, n, func(int) error { return askRaw(worker, subject, request) })
		},
		func(n int) (time.Duration, error) {
			s, err := newShelf(ctx, log, n)
			if err != nil {
				return 0, err
			}
			if err := c.settle(ctx, log); err != nil {
				return 0, err
			}
			return spread(1, n, func(int) error { return s.next().ask(ctx, api, deployment) })
		})
	if err != nil {
		return err
	}
	tell(f)
	return nil
}

// coordination is a coordinator that runs, with a mirror of its own.
type coordination struct {
	store *sessionstore.Store
	stop  func() error
}

// settle waits until the mirror has what was written up to now, so that no side is
// measured while it makes up for the other.
func (c coordination) settle(ctx context.Context, log *stream.Log) error {
	info, err := log.Info(ctx, 0)
	if err != nil {
		return err
	}
	return c.store.WaitFor(ctx, 0, info.LastSeq)
}

// coordinate runs a coordinator until it is stopped.
func (g *ground) coordinate(ctx context.Context) (coordination, error) {
	store, err := sessionstore.Open(sessionstore.Config{Dir: filepath.Join(g.dir, "mirror")})
	if err != nil {
		return coordination{}, err
	}
	nc, err := g.connect(broker.Coordinator, "coordinator")
	if err != nil {
		return coordination{}, errors.Join(err, store.Close())
	}
	c, err := newCoordinator(ctx, nc, store)
	if err != nil {
		nc.Close()
		return coordination{}, errors.Join(err, store.Close())
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	stop := func() error {
		cancel()
		err := <-ended
		nc.Close()
		return errors.Join(err, store.Close())
	}
	select {
	case <-c.Ready():
		return coordination{store, stop}, nil
	case err := <-ended:
		cancel()
		nc.Close()
		return coordination{}, errors.Join(err, store.Close())
	}
}

func newCoordinator(ctx context.Context, nc *nats.Conn, store *sessionstore.Store) (*coordinator.Coordinator, error) {
	log, err := stream.New(nc, stream.Config{Witness: store, Writer: session.Writer{Component: "coordinator", Instance: "c", Incarnation: "1"}})
	if err != nil {
		return nil, err
	}
	if err := raiseCaps(ctx, log); err != nil {
		return nil, err
	}
	return coordinator.New(coordinator.Config{Name: "c", Conn: nc, Log: log, Store: store, Tools: tools})
}

// raiseCaps sets the settings that the books are written under, and a lease that
// no measure outlives: nobody drives what is started here, and a sweep would find
// it.
func raiseCaps(ctx context.Context, log *stream.Log) error {
	value, revision, err := log.Settings().Load(ctx)
	if err != nil {
		return err
	}
	s, err := policy.ParseSettings(value)
	if err != nil {
		return err
	}
	s.Caps, s.Lease = deployed().Caps, policy.Duration(time.Minute)
	stored, err := s.Encode()
	if err != nil {
		return err
	}
	_, err = log.Settings().Update(ctx, stored, revision)
	return err
}

func currentSettings(ctx context.Context, log *stream.Log) (policy.Deployment, error) {
	value, revision, err := log.Settings().Load(ctx)
	if err != nil {
		return policy.Deployment{}, err
	}
	return policy.NewDeployment(value, revision)
}

// request asks for the next call of the open step, decided.
func (b *book) request(d policy.Deployment) (client.DelegateRequest, error) {
	s := b.view.State
	call := session.MakeCallID(s.Turn, s.Open.Step, b.open)
	dec, err := policy.Decide(s, d, policy.Call{ID: call, Tool: session.ToolDelegate, Effect: true, Wish: &policy.Wish{}}, tools)
	if err != nil {
		return client.DelegateRequest{}, err
	}
	return client.DelegateRequest{
		Head: client.Head{Version: client.APIVersion}, Session: b.id(), Tail: b.view.Tail, Epoch: s.Epoch,
		Calls: []client.Delegation{{
			CallID: call, Decision: dec.Record(),
			Spec: client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work"},
		}},
	}, nil
}

// ask delegates the next call through the service.
func (b *book) ask(ctx context.Context, api *client.Client, d policy.Deployment) error {
	s := b.view.State
	in, err := b.request(d)
	if err != nil {
		return err
	}
	var out client.DelegateReply
	if err := api.Call(ctx, client.MethodDelegate, in, &out); err != nil {
		return err
	}
	if e := out.Outcomes[0].Error; e != nil {
		return e
	}
	decision, err := session.DecodeEvent(out.Outcomes[0].Line)
	if err != nil {
		return err
	}
	b.open++
	decision.Session, decision.Class = b.id(), session.ClassTurn
	decision.Link = session.EventLink(s.Link, b.id(), session.ClassTurn, decision.Line)
	b.view.State, err = session.Fold(s, decision)
	b.view.Tail = out.Tail
	return err
}

// rawService answers requests by the raw publish and nothing else, one after the
// other.
type rawService struct {
	conn  *nats.Conn
	shelf atomic.Pointer[rawShelf]
}

func (s *rawService) serve(ctx context.Context, subject string) (micro.Service, error) {
	svc, err := micro.AddService(s.conn, micro.Config{Name: "raw", Version: "1.0.0"})
	if err != nil {
		return nil, err
	}
	err = svc.AddEndpoint("raw", micro.HandlerFunc(func(req micro.Request) {
		book := s.shelf.Load().following()
		if err := book.publish(ctx, s.conn); err != nil {
			_ = req.Error("500", err.Error(), nil)
			return
		}
		_ = req.Respond([]byte(strconv.FormatUint(book.tail, 10)))
	}), micro.WithEndpointSubject(subject))
	if err != nil {
		return nil, errors.Join(err, svc.Stop())
	}
	return svc, nil
}

// askRaw sends a request of the same size and reads the answer.
func askRaw(nc *nats.Conn, subject string, body []byte) error {
	answer, err := nc.Request(subject, body, 5*time.Second)
	if err != nil {
		return err
	}
	if code := answer.Header.Get(micro.ErrorCodeHeader); code != "" {
		return fmt.Errorf("raw service: %s %s", code, answer.Header.Get(micro.ErrorHeader))
	}
	return nil
}
