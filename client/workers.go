package client

import (
	"fmt"
	"time"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// WorkerState is what a worker does with work.
type WorkerState string

// The states of a worker.
const (
	// WorkerReady takes work.
	WorkerReady WorkerState = "ready"
	// WorkerCordoned takes no session that it does not drive already, and goes on
	// with those.
	WorkerCordoned WorkerState = "cordoned"
	// WorkerDraining begins no turn either, and hands over those that run once
	// their time is up.
	WorkerDraining WorkerState = "draining"
)

// WorkerStates lists what can be ordered of a worker.
func WorkerStates() []WorkerState { return []WorkerState{WorkerReady, WorkerCordoned, WorkerDraining} }

// WorkerOrder is what an admin ordered of a worker. It is kept by the worker's name,
// so it holds for every run of the worker until there is another one.
type WorkerOrder struct {
	State WorkerState `json:"state"`
	// Grace is how long turns may go on at a draining worker before they are handed
	// over, from when the worker reads it.
	Grace  policy.Duration `json:"grace,omitempty"`
	Reason string          `json:"reason,omitempty"`
	By     session.Party   `json:"by"`
	At     int64           `json:"at"` // milliseconds since 1970
}

// ReadOrder reads a stored order. What was never written orders nothing; what cannot
// be read is a cordon: whoever wrote it did not want things to go on as they were.
func ReadOrder(value []byte) (WorkerOrder, error) {
	if len(value) == 0 {
		return WorkerOrder{State: WorkerReady}, nil
	}
	var o WorkerOrder
	err := Decode(value, &o)
	if err == nil {
		err = o.State.check()
	}
	if err != nil {
		return WorkerOrder{State: WorkerCordoned, Reason: "its orders cannot be read"}, fmt.Errorf("read a worker's orders: %w", err)
	}
	return o, nil
}

func (s WorkerState) check() error {
	switch s {
	case WorkerReady, WorkerCordoned, WorkerDraining:
		return nil
	}
	return fmt.Errorf("unknown state %q of a worker (available: %s, %s, %s)", s, WorkerReady, WorkerCordoned, WorkerDraining)
}

// Orders reports, as an error that is nil, whether an order makes sense.
func (o WorkerOrder) Orders() error {
	if err := o.State.check(); err != nil {
		return err
	}
	switch g := time.Duration(o.Grace); {
	case o.State != WorkerDraining && g != 0:
		return fmt.Errorf("grace %v is of a worker that drains: leave it out", g)
	case g < 0 || g > MaxDrain:
		return fmt.Errorf("grace %v: give 0s to %v", g, MaxDrain)
	}
	return nil
}

// MaxDrain bounds how long turns may go on at a draining worker.
const MaxDrain = 24 * time.Hour

// WorkerSetRequest orders a state of a worker, alive or not.
type WorkerSetRequest struct {
	Head
	Worker string          `json:"worker"`
	State  WorkerState     `json:"state"`
	Grace  policy.Duration `json:"grace,omitempty"`
	Reason string          `json:"reason,omitempty"`
}

// WorkerSetReply says what came of an order. Confirmed is false if the worker is
// alive and has not said in time that it obeys.
type WorkerSetReply struct {
	Worker    WorkerSummary `json:"worker"`
	Confirmed bool          `json:"confirmed"`
}

// WorkerRequest asks about one worker.
type WorkerRequest struct {
	Head
	Worker string `json:"worker"`
}

// WorkerHistoryReply holds the orders of a worker that are kept, oldest first.
type WorkerHistoryReply struct {
	Orders []WorkerOrder `json:"orders"`
}

// WorkerListReply lists the live workers, and those that are not alive but have
// orders, by name.
type WorkerListReply struct {
	Workers []WorkerSummary `json:"workers"`
}

// WorkerSummary is a worker as listings show it. Of one that is not alive only its
// name and its order are known.
type WorkerSummary struct {
	Name  string `json:"name"`
	Alive bool   `json:"alive"`
	// State is what the worker says it does; what it was ordered to do is in Order.
	State       WorkerState `json:"state,omitempty"`
	Incarnation string      `json:"incarnation,omitempty"`
	Version     string      `json:"version,omitempty"`
	Since       int64       `json:"since,omitempty"` // milliseconds since 1970
	// Renewed is how many milliseconds ago it gave its last sign of life.
	Renewed     int64               `json:"renewed"`
	Lease       policy.Duration     `json:"lease,omitempty"`
	Concurrency int                 `json:"concurrency,omitempty"`
	Sessions    []session.ID        `json:"sessions"`
	Tier        session.Tier        `json:"tier,omitempty"`
	Enforcement session.Enforcement `json:"enforcement,omitempty"`
	Labels      []string            `json:"labels,omitempty"`
	Workspaces  []string            `json:"workspaces,omitempty"`
	// Revision is that of the settings which it has confirmed.
	Revision uint64       `json:"revision"`
	Waits    []AliveWait  `json:"waits,omitempty"`
	Order    *WorkerOrder `json:"order,omitempty"`
}
