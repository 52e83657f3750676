package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/entail-fleet/entail/internal/failpoint"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// driver drives one session until there is nothing to do. It performs what Next
// says and keeps nothing that the log does not say, but for what only it can
// know: when something began on its own clock.
type driver struct {
	worker *Worker
	id     session.ID
	rep    *Replica
	log    *slog.Logger
	poked  chan struct{} // sent by the worker
	abort  context.CancelCauseFunc

	beat       *beat // of the claim it holds
	epoch      uint64
	settled    session.Seq
	lapses     time.Time // when another driver's sign of life lapses, as seen last
	undisposed string    // why what the open turn held could not be given up

	mu    sync.Mutex // guards what follows: calls of a step run beside each other
	began map[session.Seq]time.Time
	ws    *sandbox.Workspace
}

// How long the steps of a loop may take before it is taken for stuck.
const (
	limitAppend = time.Minute
	limitModel  = 15 * time.Minute
	limitCall   = maxTimeout + time.Minute
)

// Why a driver leaves a session that is not done.
var (
	errBusy     = errors.New("another driver is alive")
	errLost     = errors.New("the session was claimed by another driver")
	errDraining = errors.New("the worker is stopping")
	errStopped  = errors.New("the turn was stopped")
	errLease    = errors.New("the lease is over")
)

// ErrAborted says that a worker was told to end what runs, wherever it is.
var ErrAborted = errors.New("the worker was aborted: what ran was ended where it was")

// busyError is errBusy with when the other driver's last sign of life lapses, by the
// server's clock.
type busyError struct{ lapses time.Time }

// Error implements error.
func (e *busyError) Error() string { return errBusy.Error() }

// Is reports that e is errBusy.
func (e *busyError) Is(target error) bool { return target == errBusy }

// drive drives the session until there is nothing to do for anybody. An error
// says why it was left earlier.
func (d *driver) drive(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, d.close(ctx, err)) }()
	for opened := true; ; opened = false {
		if !opened { // just now, as it stands
			if err := d.rep.Refresh(ctx, 0); err != nil {
				return err
			}
		}
		f, err := d.facts(ctx)
		if err != nil {
			return err
		}
		record, next, err := Plan(f)
		if err != nil {
			return fmt.Errorf("drive %s: %w", d.id, err)
		}
		if err := d.worker.shift.stays(record, next); err != nil {
			return err
		}
		switch {
		case rests(record) && d.dispose(): // and look again
		case len(record) > 0:
			err = d.write(ctx, f, record)
		case next.Kind == Idle:
			return nil
		default:
			err = d.perform(ctx, f, next)
		}
		if err != nil && !errors.Is(err, session.ErrConflict) {
			return err
		}
	}
}

// perform does an action that is more than a record. A conflict means that the
// log has moved on: look again.
func (d *driver) perform(ctx context.Context, f Facts, a Action) error {
	switch a.Kind {
	case RequestModel:
		d.beat.allow(limitModel)
		return d.request(ctx, f)
	case DecideCalls:
		d.beat.allow(limitAppend)
		return d.decide(ctx, f, a.Calls)
	case RunCalls:
		d.beat.allow(limitAppend)
		return d.rerun(ctx, f, a.Calls)
	case Settle:
		return d.settle(ctx, f.State)
	case Busy:
		return &busyError{d.lapses}
	case Lost:
		return errLost
	default:
		panic(fmt.Sprintf("unreachable: action %d performs nothing", a.Kind))
	}
}

// facts are what Next is asked about now. Whether the claim in force is alive is
// asked for only where it matters.
func (d *driver) facts(ctx context.Context) (Facts, error) {
	s, events := d.rep.both()
	f := Facts{
		State: s, Events: events, Deployment: d.worker.pulse.settings(),
		Self: Self{
			Worker: d.worker.cfg.Name, Incarnation: d.worker.cfg.Incarnation,
			Epoch: d.epoch, Settled: d.settled, Undisposed: d.undisposed, Now: time.Now().UnixMilli(),
		},
	}
	if d.epoch == 0 && s.Open != nil && !s.Open.Parked {
		workers, lapses, err := d.worker.pulse.workers(ctx)
		if err != nil {
			return Facts{}, err
		}
		a := workers[s.Claim.Worker]
		f.Self.Live = a.Incarnation == s.Claim.Incarnation && a.Drives(s.Header.ID, s.Epoch)
		if !f.Self.Live {
			return f, quarantine(s, events, workers)
		}
		d.lapses = lapses[s.Claim.Worker]
	}
	return f, nil
}

// write appends a record that was planned on exactly these facts. If anything has
// slipped in, it is a conflict. A claim is listed as alive before it is made.
func (d *driver) write(ctx context.Context, f Facts, record []session.Payload) error {
	claim, claims := record[0].(*session.Claim)
	epoch := d.epoch
	stop := stops(f.State, record)
	failpoint.Reach("before-" + stop)
	if claims {
		if err := d.worker.suits(f.State); err != nil {
			return err
		}
		epoch = claim.Epoch
		b, err := d.worker.pulse.take(ctx, d.id, epoch, limitAppend)
		if err != nil {
			return err
		}
		if err := d.append(ctx, d.exactly(f, "claim", epoch, record)); err != nil {
			b.drop()
			return err
		}
		if d.beat != nil {
			d.beat.drop()
		}
		d.beat, d.epoch = b, epoch
	} else {
		d.beat.allow(limitAppend)
		if err := d.append(ctx, d.exactly(f, "go on", epoch, record)); err != nil {
			return err
		}
	}
	failpoint.Reach("after-" + stop)
	if slices.ContainsFunc(record, is[*session.TurnEnd]) {
		d.undisposed = ""
	}
	return nil
}

// stops names the point in front of which and behind which a test may stop a driver that
// writes a record.
func stops(s session.State, record []session.Payload) string {
	switch {
	case slices.ContainsFunc(record, is[*session.TurnEnd]) && s.Header.IsChild():
		return "end"
	case slices.ContainsFunc(record, is[*session.TurnPark]):
		return "park"
	case is[*session.Claim](record[0]):
		return "claim"
	}
	return ""
}

// rests reports whether a record leaves the turn to wait or ends it.
func rests(record []session.Payload) bool {
	return slices.ContainsFunc(record, func(p session.Payload) bool { return is[*session.TurnPark](p) || is[*session.TurnEnd](p) })
}

// dispose gives up what the turn held, before the log says that the turn has ended or
// waits: what fails becomes the turn's end. It reports whether anything was held.
func (d *driver) dispose() bool {
	if !d.holds() {
		return false
	}
	d.beat.allow(limitCall) // there may be much to remove
	if err := d.closeWorkspace(); err != nil {
		d.log.Error("what a turn held is not gone", slog.Any("error", err))
		d.undisposed = "what the turn held could not be given up: " + reason(err)
	}
	return true
}

// exactly is the change that writes a record planned on a state, and only there.
func (d *driver) exactly(f Facts, name string, epoch uint64, record []session.Payload) stream.Change {
	return stream.Change{
		Name: name, Class: session.ClassTurn, Once: true,
		Check: func(v session.View) error {
			if v.State.Next != f.State.Next || v.State.Link != f.State.Link {
				return &session.ConflictError{Session: d.id, Tail: v.Tail}
			}
			return nil
		},
		Epoch:  func(session.View) uint64 { return epoch },
		Drafts: func(session.View) ([]session.Draft, error) { return d.drafts(f.Self.Now, record), nil },
	}
}

// whileMine is the change that writes a record anywhere in the claim that this
// loop holds, as long as still says so.
func (d *driver) whileMine(name string, still func(session.State) bool, record []session.Payload) stream.Change {
	now := time.Now().UnixMilli()
	return stream.Change{
		Name: name, Class: session.ClassTurn,
		Check: func(v session.View) error {
			if v.State.Epoch != d.epoch {
				return errLost
			}
			if !still(v.State) {
				return &session.ConflictError{Session: d.id, Tail: v.Tail}
			}
			return nil
		},
		Epoch:  func(session.View) uint64 { return d.epoch },
		Drafts: func(session.View) ([]session.Draft, error) { return d.drafts(now, record), nil },
	}
}

func (d *driver) append(ctx context.Context, c stream.Change) error {
	done, err := d.worker.cfg.Log.Append(ctx, d.rep, d.id, c)
	if err != nil {
		return err
	}
	if own := done.Record.Own; own != nil {
		d.note(own.Events)
	}
	return d.rep.Refresh(ctx, done.StreamSeq)
}

// note remembers when the events of an own record were written.
func (d *driver) note(events []session.Event) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.began == nil {
		d.began = map[session.Seq]time.Time{}
	}
	for _, e := range events {
		d.began[e.Seq] = now
		if is[*session.TurnEnd](e.Payload) {
			clear(d.began)
		}
	}
}

// drafts gives events their time and end events their duration, if they began on
// this clock.
func (d *driver) drafts(now int64, record []session.Payload) []session.Draft {
	out := make([]session.Draft, len(record))
	for i, p := range record {
		switch e := p.(type) {
		case *session.TurnEnd:
			d.measure(&e.Extent)
		case *session.StepEnd:
			d.measure(&e.Extent)
		case *session.AssistantMessage:
			d.measure(&e.Extent)
		case *session.ToolResult:
			d.measure(&e.Extent)
		}
		out[i] = session.Draft{Time: now, Payload: p}
	}
	return out
}

func (d *driver) measure(e *session.Extent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if began, ok := d.began[e.StartSeq]; ok {
		ns := time.Since(began).Nanoseconds()
		e.DurationNs = &ns
	}
}

// workspace opens the session's workspace on its first effect. The mark is looked
// at again after that: what was mounted at the claim may be gone.
func (d *driver) workspace(s session.State) (*sandbox.Workspace, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ws != nil {
		return d.ws, nil
	}
	ws, err := d.worker.cfg.Runner.Workspace(s.Header.Cwd, s.Header.Root)
	if err != nil {
		return nil, err
	}
	if err := sandbox.CheckMark(s.Header.Workspace.Path, s.Header.Workspace.ID); err != nil {
		return nil, errors.Join(err, ws.Close())
	}
	d.ws = ws
	return ws, nil
}

// holds reports whether the loop holds a workspace.
func (d *driver) holds() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ws != nil
}

func (d *driver) closeWorkspace() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ws == nil {
		return nil
	}
	ws := d.ws
	d.ws = nil
	return ws.Close()
}

// close gives up what the loop held. A turn that it leaves open is free for
// others at once, not only when the list is renewed next.
func (d *driver) close(ctx context.Context, why error) error {
	err := d.closeWorkspace()
	if d.beat == nil {
		return err
	}
	d.beat.drop()
	if s, _ := d.rep.State(); s.Open != nil && !s.Open.Parked && s.Epoch == d.epoch {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limitRelease)
		defer cancel()
		d.giveUp(ctx, why)
		err = errors.Join(err, d.worker.pulse.renew(ctx))
	}
	return err
}

// limitRelease bounds the last words of a loop.
const limitRelease = 2 * time.Second
