package agent

import (
	"context"
	"fmt"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// Witness has a coordinator's mirror confirm that a session's own space is empty,
// which a worker must know before it writes there first.
type Witness struct {
	// Client reaches a coordinator as this worker.
	Client *client.Client
}

var _ stream.TailWitness = Witness{}

// Empty implements [stream.Witness].
func (w Witness) Empty(ctx context.Context, id session.ID, past uint64) error {
	req := client.EmptyRequest{Head: client.Head{Version: client.APIVersion}, Session: id, Past: past}
	err := w.Client.Call(ctx, client.MethodEmpty, req, nil)
	if client.CodeOf(err) == client.CodeConflict { // which has no tail
		if beyond := w.Beyond(ctx, id, 0); beyond != nil {
			return beyond
		}
	}
	if err != nil {
		return fmt.Errorf("ask whether %s is empty: %w", id, lossIn(err))
	}
	return nil
}

// lossIn makes a loss of an answer that says so.
func lossIn(err error) error {
	if client.CodeOf(err) == client.CodeLoss {
		return fmt.Errorf("%w: %w", session.ErrLoss, err)
	}
	return err
}

// Beyond implements [stream.TailWitness]. A mirror that does not know the session
// remembers nothing of it.
func (w Witness) Beyond(ctx context.Context, id session.ID, tail uint64) error {
	req := client.ColdRequest{Head: client.Head{Version: client.APIVersion}, ID: id, After: tail}
	var reply client.ColdReply
	err := w.Client.Call(ctx, client.MethodCold, req, &reply)
	if client.CodeOf(err) == client.CodeNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask what a mirror holds of %s: %w", id, lossIn(err))
	}
	held := tail
	err = client.Unpack(reply.Records, func(raw session.Raw) error {
		if raw.Address.Space() == id {
			held = raw.StreamSeq
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("read what a mirror holds of %s: %w", id, err)
	case held > tail:
		return &session.ConflictError{Session: id, Want: tail, Tail: held}
	}
	return nil
}
