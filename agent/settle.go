package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/internal/failpoint"
	"github.com/entail-fleet/entail/session"
)

// errUntold says that the parent's log does not tell yet how a child's turn
// ended.
var errUntold = errors.New("the parent was not told yet")

// settle has a coordinator write what the end of a child's turn owes its parent,
// and returns when the parent's log says so: a coordinator whose mirror is behind
// sees nothing owed, and only the log is a fact.
func (d *driver) settle(ctx context.Context, s session.State) error {
	parent, done, err := d.worker.replicas.open(ctx, s.Header.ParentSession, "")
	if err != nil {
		return d.untold(err)
	}
	defer done()
	failpoint.Reach("before-notice")
	wait := firstWait
	for !told(parent, s) {
		if wait > lastWait {
			return d.untold(errors.New("no notice came"))
		}
		req := client.SettledRequest{Head: client.Head{Version: client.APIVersion}, Session: d.id}
		if err := d.worker.cfg.Client.Call(ctx, client.MethodSettled, req, nil); err != nil {
			return d.untold(err)
		}
		if err := parent.Refresh(ctx, 0); err != nil {
			return d.untold(err)
		}
		if told(parent, s) {
			break
		}
		if !delay.For(ctx, wait) {
			return context.Cause(ctx)
		}
		wait *= 2
	}
	failpoint.Reach("after-notice")
	d.settled = s.Next
	return nil
}

// untold says that the parent could not be told. What is wrong with the parent is
// not wrong with the child, so the cause is text alone.
func (d *driver) untold(cause error) error {
	return fmt.Errorf("tell the parent of %s: %w: %v", d.id, errUntold, cause) //nolint:errorlint // see above
}

const (
	firstWait = 5 * time.Millisecond
	lastWait  = 2 * time.Second
)

// told reports whether a parent knows how its child's last turn ended and, if the
// child has ended, has its slot back.
func told(parent *Replica, child session.State) bool {
	p, _ := parent.State()
	slot, live := p.Child(child.Header.ID)
	return !live || child.Ended == nil && slot.Noticed >= child.LastEnd.Turn
}
