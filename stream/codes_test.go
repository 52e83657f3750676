package stream_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// A conditional write that lost is a conflict, whichever of its two codes the server
// gives and on whatever path: inbox, policy, turn, genesis, settings. It is tried a
// bounded number of times, and nothing but a conflict leaves the package.
func TestF1_BothCodesAreOneConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t, func(c *stream.Config) { c.Budget = time.Minute })
	id := begin(t, l, v, 1)
	tail := records(t, l, id)[0].StreamSeq
	append1 := func(c stream.Change) func() error {
		c.Once = true
		return func() error { _, err := l.Append(t.Context(), v, id, c); return err }
	}
	roots := 1
	paths := map[string]func() error{
		"inbox":  append1(nudge("a")),
		"policy": append1(stream.Change{Name: "switch", Class: session.ClassPolicy, Drafts: drafts(&session.SandboxSwitch{Mode: session.ReadOnly, By: person})}),
		"turn": append1(stream.Change{
			Name: "claim", Class: session.ClassTurn, Epoch: func(session.View) uint64 { return 1 },
			Drafts: drafts(&session.Claim{Epoch: 1, Worker: "w1", Incarnation: "i1", Cause: session.CauseStart}),
		}),
		"genesis": func() error {
			roots++ // a session whose tail was told of and is not there would be a loss
			c := genesisChange(rootID(t, roots))
			c.Once = true
			_, err := l.Append(t.Context(), v, rootID(t, roots), c)
			return err
		},
		"settings": func() error { _, err := l.Settings().Update(t.Context(), []byte("one"), 0); return err },
	}
	for code, api := range map[int]*jetstream.APIError{
		10071: {Code: 400, ErrorCode: 10071, Description: fmt.Sprintf("wrong last sequence: %d", tail)},
		10164: {Code: 400, ErrorCode: 10164, Description: "wrong last sequence"},
	} {
		for path, write := range paths {
			tries := 0
			l.Intercept(func(stream.Publish) stream.Publish {
				return func(context.Context, *nats.Msg) (*jetstream.PubAck, error) { tries++; return nil, api }
			})
			err := write()
			if !errors.Is(err, session.ErrConflict) && !errors.Is(err, stream.ErrRevision) || errors.Is(err, stream.ErrUnknown) {
				t.Errorf("%d for %s: %v, want a conflict", code, path, err)
			}
			if most := map[int]int{10071: 1, 10164: 51}[code]; tries == 0 || tries > most {
				t.Errorf("%d for %s: %d tries, want at most %d", code, path, tries, most)
			}
		}
	}
	if got := records(t, l, id); len(got) != 1 {
		t.Errorf("%d records stand in the session, want its genesis", len(got))
	}
}
