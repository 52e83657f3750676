package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// The descriptors that a process started by another one finds open.
const (
	orderFD  = 3
	statusFD = 4
)

// errOrphan ends a process whose starter is gone.
var errOrphan = errors.New("whoever started this process is gone")

// Status is what a process tells its starter once: that it is ready, or why it
// never will be.
type Status struct {
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
}

// Bound is a process's tie to the one that started it.
type Bound struct {
	Order  Order
	order  *os.File
	status *os.File
}

// Bind takes the order off its descriptor. The returned context ends when ctx
// does or when the starter is gone.
func Bind(ctx context.Context) (context.Context, *Bound, error) {
	syscall.CloseOnExec(orderFD)
	syscall.CloseOnExec(statusFD)
	b := &Bound{order: os.NewFile(orderFD, "order"), status: os.NewFile(statusFD, "status")}
	var err error
	if b.Order, err = ReadOrder(b.order); err != nil {
		return nil, nil, fmt.Errorf("%w (this command is started by entail up, not by hand)", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		// Nothing follows an order, so this returns when the other end is closed.
		_, _ = io.Copy(io.Discard, b.order)
		cancel(errOrphan)
	}()
	return ctx, b, nil
}

// Ready tells the starter that the process does its work.
func (b *Bound) Ready() { b.tell(Status{Ready: true}) }

// Fail tells the starter why the process ends.
func (b *Bound) Fail(err error) { b.tell(Status{Error: err.Error()}) }

// tell writes one status. A starter that is gone needs none.
func (b *Bound) tell(s Status) { _ = json.NewEncoder(b.status).Encode(s) }
