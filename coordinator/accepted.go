package coordinator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// errAtOnce is a request whose id stands in a record that is being written: what it
// holds is not to be read yet.
var errAtOnce = errors.New("a request with this id is being written")

// appendAccepted appends, on a view that has come to a tail, a request that has an id.
// One that meets its own id in a record that is being written looks again once that is
// read.
func (c *Coordinator) appendAccepted(ctx context.Context, space session.ID, tail uint64, ch stream.Change) (stream.Done, error) {
	const look = 5 * time.Millisecond
	for {
		done, err := c.appendAfter(ctx, space, tail, ch)
		if !errors.Is(err, errAtOnce) || !delay.For(ctx, look) {
			return done, err
		}
	}
}

// accepted is what a log has accepted under an id, nil if that is nothing.
func (c *Coordinator) accepted(ctx context.Context, v session.View, id string) (session.Payload, error) {
	if !v.Has(id) {
		return nil, nil //nolint:nilnil // there is nothing
	}
	of := v.State.Header
	// Events are read from the mirror, which may be behind what this coordinator wrote.
	if _, err := c.cfg.Store.View(ctx, of.ID, v.Tail); err != nil {
		return nil, err
	}
	var found session.Payload
	err := c.cfg.Store.Events(of.ID, 0, v.State.Next, func(e session.Event) error {
		if has, ok := session.MessageID(e); ok && has == id && e.Seq >= of.InheritedEventCount {
			found = e.Payload
			return errDone
		}
		return nil
	})
	switch {
	case found != nil:
		return found, nil
	case err != nil:
		return nil, err
	}
	return nil, errAtOnce
}

// sameRequest refuses a request under an id that another one was accepted under: the
// sender would take its own for done (SPEC 1.10). Looking the other one up may have
// failed with err.
func sameRequest(v session.View, was, request session.Payload, err error) error {
	if err != nil || !idsTaken || reflect.DeepEqual(was, request) {
		return err
	}
	id := v.State.Header.ID
	return &client.Error{Code: client.CodeIDTaken, Session: id, Message: fmt.Sprintf(
		"the log of session %s has another request under this id: send yours under a new one", id)}
}
