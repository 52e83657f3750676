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

var _ stream.Witness = Witness{}

// Empty implements [stream.Witness].
func (w Witness) Empty(ctx context.Context, id session.ID, past uint64) error {
	req := client.EmptyRequest{Head: client.Head{Version: client.APIVersion}, Session: id, Past: past}
	if err := w.Client.Call(ctx, client.MethodEmpty, req, nil); err != nil {
		return fmt.Errorf("ask whether %s is empty: %w", id, err)
	}
	return nil
}
