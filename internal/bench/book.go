package bench

import (
	"context"
	"strconv"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

var by = session.Party{Kind: session.Program, ID: "bench"}

// deployed are settings under which no cap is met.
func deployed() policy.Deployment {
	s := policy.DefaultSettings()
	s.Caps = policy.Caps{Depth: 100, Live: 1 << 20, Tree: 1 << 20, Inbox: 1 << 20}
	return policy.Deployment{Settings: s, Revision: 1, Hash: "0123456789abcdef"}
}

// book is one session as its only writer knows it.
type book struct {
	log  *stream.Log
	view session.View
	open int // calls of the open step that are not delegated yet
}

// View implements stream.Viewer.
func (b *book) View(context.Context, session.ID, uint64) (session.View, error) { return b.view, nil }

func (b *book) id() session.ID { return b.view.State.Header.ID }

// newBook starts a root and opens a turn, and in it a step of delegating calls.
func newBook(ctx context.Context, log *stream.Log, calls int) (*book, error) {
	id, err := session.RootID(ulid.Make().String(), 1)
	if err != nil {
		return nil, err
	}
	record, err := delegation.Root{
		ID: id, Tenant: "default", By: by, Time: 1, Cwd: "/work", Provider: "none", Model: "none",
		Workspace: session.Workspace{Kind: session.WorkspaceShared, Label: "default", Path: "/work", ID: "w"},
	}.Genesis(deployed())
	if err != nil {
		return nil, err
	}
	b := &book{log: log}
	done, err := log.Append(ctx, b, id, stream.Change{
		Name: "begin", Genesis: func(session.View) (session.Record, error) { return record, nil },
	})
	if err != nil {
		return nil, err
	}
	state, err := session.Begin(*record.Birth, session.Prefix{})
	if err != nil {
		return nil, err
	}
	b.view = session.View{
		State: state, Tail: done.StreamSeq,
		Link: func(session.Seq) (session.Link, bool) { return session.Link{}, false },
		Has:  func(string) bool { return false },
	}
	return b, b.step(ctx, calls)
}

// step opens a turn with one step of delegating calls; no calls open nothing.
func (b *book) step(ctx context.Context, calls int) error {
	if calls == 0 {
		return nil
	}
	s := b.view.State
	turn := s.Turn + 1
	answer := &session.AssistantMessage{Turn: turn, Step: 1}
	events := []session.Payload{
		&session.Claim{Epoch: s.Epoch + 1, Worker: "bench", Incarnation: "1", Cause: session.CauseStart},
		&session.TurnStart{Turn: turn}, &session.StepStart{Turn: turn, Step: 1}, answer,
	}
	for i := range calls {
		answer.Calls = append(answer.Calls, i)
		events = append(events, &session.ToolCall{Turn: turn, Step: 1, Index: i, CallID: session.MakeCallID(turn, 1, i), Name: session.ToolDelegate, Arguments: "{}"})
	}
	b.open = 0
	return b.turn(ctx, s.Epoch+1, events...)
}

// turn appends events of class turn.
func (b *book) turn(ctx context.Context, epoch uint64, events ...session.Payload) error {
	return b.append(ctx, stream.Change{
		Name: "turn", Class: session.ClassTurn, Once: true, Epoch: func(session.View) uint64 { return epoch }, Drafts: drafts(events...),
	})
}

// nudges appends n events that change nothing, as one record.
func (b *book) nudges(ctx context.Context, n int) error {
	events := make([]session.Payload, n)
	for i := range events {
		events[i] = nudge(i)
	}
	return b.append(ctx, stream.Change{Name: "nudge", Class: session.ClassInbox, Drafts: drafts(events...)})
}

func nudge(i int) *session.Nudge {
	return &session.Nudge{ID: strconv.Itoa(i), Reason: "measuring", By: &by}
}

func drafts(events ...session.Payload) func(session.View) ([]session.Draft, error) {
	return func(session.View) ([]session.Draft, error) {
		out := make([]session.Draft, len(events))
		for i, p := range events {
			out[i] = session.Draft{Time: 1, Payload: p}
		}
		return out, nil
	}
}

func (b *book) append(ctx context.Context, c stream.Change) error {
	done, err := b.log.Append(ctx, b, b.id(), c)
	if err != nil {
		return err
	}
	b.took(done)
	return nil
}

// took goes on behind an append. The lookups of a writer that never retries are
// left as they are.
func (b *book) took(done stream.Done) { b.view.State, b.view.Tail = *done.State, done.StreamSeq }

// order is the next delegating call of the open step, decided.
func (b *book) order(kind session.Kind) (delegation.Order, error) {
	s := b.view.State
	req := delegation.Request{Kind: kind, Mode: session.OneShot, Label: "child", Prompt: "work"}
	wish := req.Wish()
	call := session.MakeCallID(s.Turn, s.Open.Step, b.open)
	d, err := policy.Decide(s, deployed(), policy.Call{ID: call, Tool: session.ToolDelegate, Effect: true, Wish: &wish}, tools)
	if err != nil {
		return delegation.Order{}, err
	}
	b.open++
	return delegation.Order{CallID: call, Request: req, Decision: d.Record(), Epoch: s.Epoch, Time: 1, Tools: tools}, nil
}

var tools = []string{session.ToolDelegate}

// delegate commits the next delegating call.
func (b *book) delegate(ctx context.Context, kind session.Kind) error {
	o, err := b.order(kind)
	if err != nil {
		return err
	}
	done, err := b.log.Append(ctx, b, b.id(), stream.Change{
		Name: "delegate", Once: true,
		Genesis: func(v session.View) (session.Record, error) { return o.Child(v, deployed()) },
	})
	if err != nil {
		return err
	}
	b.took(done)
	return nil
}

// callsPerBook is how many children a parent starts in one step.
const callsPerBook = 8

// shelf is parents enough for one caller's delegations.
type shelf struct{ books []*book }

func newShelf(ctx context.Context, log *stream.Log, delegations int) (*shelf, error) {
	var s shelf
	for left := delegations; left > 0; left -= callsPerBook {
		b, err := newBook(ctx, log, callsPerBook)
		if err != nil {
			return nil, err
		}
		s.books = append(s.books, b)
	}
	return &s, nil
}

// next is a parent with a call that is not delegated yet.
func (s *shelf) next() *book {
	if s.books[0].open == callsPerBook {
		s.books = s.books[1:]
	}
	return s.books[0]
}
