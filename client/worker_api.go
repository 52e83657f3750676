package client

import (
	"encoding/json"
	"slices"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// DelegateRequest asks the coordinator to commit the delegating calls of one
// step, in order, the first at exactly Tail (SPEC 4.4).
type DelegateRequest struct {
	Head
	Session session.ID   `json:"session"`
	Tail    uint64       `json:"tail"`
	Epoch   uint64       `json:"epoch"`
	Calls   []Delegation `json:"calls"`
}

// Delegation is one delegating call: what it asks for, and the decision that the
// worker made of it at the request's tail.
type Delegation struct {
	CallID   session.CallID       `json:"callId"`
	Spec     DelegateSpec         `json:"spec"`
	Decision session.ToolDecision `json:"decision"`
}

// DelegateSpec is what a delegating call asks for. Its digest tells a retry from
// something else (SPEC 1.10).
type DelegateSpec struct {
	Kind    session.Kind        `json:"kind"`
	Mode    session.Mode        `json:"mode"`
	Label   string              `json:"label"`
	Prompt  string              `json:"prompt"`
	Sandbox session.SandboxMode `json:"sandbox,omitempty"`
	Tools   *session.ToolFilter `json:"tools,omitempty"`
	Persona string              `json:"persona,omitempty"`
}

// DelegateReply holds one outcome for each call that was tried, in order, and the
// parent's new tail. Calls after the first that did not end in a child were not
// tried.
type DelegateReply struct {
	Outcomes []DelegateOutcome `json:"outcomes"`
	Tail     uint64            `json:"tail"`
}

// DelegateOutcome is a child and where its genesis stands, or why there is none.
// A conflict means that the tail has moved: fold and decide again. Line is the
// decision as it now stands in the parent's log, so that it can be folded without
// being read; it is left out when an earlier try of the same request wrote it.
type DelegateOutcome struct {
	CallID    session.CallID  `json:"callId"`
	Child     session.ID      `json:"child,omitempty"`
	StreamSeq uint64          `json:"streamSeq,omitempty"`
	Line      json.RawMessage `json:"line,omitempty"`
	Error     *Error          `json:"error,omitempty"`
}

// SettledRequest asks the coordinator to write what the end of a session's turns
// owes: the notice in its parent, and the closing of a child that has ended. It
// is idempotent.
type SettledRequest struct {
	Head
	Session session.ID `json:"session"`
}

// EmptyRequest asks for a full mirror's word that a session's own space holds no
// record up to a stream sequence (the tail of a log with only a genesis).
type EmptyRequest struct {
	Head
	Session session.ID `json:"session"`
	Past    uint64     `json:"past,omitempty"`
}

// ColdRequest reads a session's raw records after a stream sequence.
type ColdRequest struct {
	Head
	ID    session.ID `json:"id"`
	After uint64     `json:"after,omitempty"`
}

// ColdReply holds raw records in stream order as [Pack] writes them; More says
// that others follow. A worker is given records and no fold: the links that it
// checks them by cover events, and nothing that was folded from them.
type ColdReply struct {
	Records []byte `json:"records"`
	More    bool   `json:"more,omitempty"`
}

// Alive is what a worker keeps in the liveness bucket, under its own name, as
// long as it lives: the claims it drives, one by one, and the settings revision
// it has confirmed (ARCHITECTURE 4). A claim that is not listed is not live.
// Lease is the worker's own: the deployment's may have changed since it began.
// Orders is the revision of its orders that it obeys. The rest is for people;
// nothing is decided by it. A worker of an earlier build says less.
type Alive struct {
	Worker      string          `json:"worker"`
	Incarnation string          `json:"incarnation"`
	Lease       policy.Duration `json:"lease"`
	Revision    uint64          `json:"revision"`
	Claims      []AliveClaim    `json:"claims"`
	Waits       []AliveWait     `json:"waits,omitempty"`

	Orders      uint64              `json:"orders,omitempty"`
	State       WorkerState         `json:"state,omitempty"`
	Version     string              `json:"version,omitempty"`
	Since       int64               `json:"since,omitempty"` // milliseconds since 1970
	Concurrency int                 `json:"concurrency,omitempty"`
	Tier        session.Tier        `json:"tier,omitempty"`
	Enforcement session.Enforcement `json:"enforcement,omitempty"`
	Labels      []string            `json:"labels,omitempty"`
	Workspaces  []string            `json:"workspaces,omitempty"`
}

// AliveClaim is one claim that a worker drives.
type AliveClaim struct {
	Session session.ID `json:"session"`
	Epoch   uint64     `json:"epoch"`
}

// AliveWait is a session that a worker was pointed at last and does not drive, why,
// and what of a worker it waits for, if it is that.
type AliveWait struct {
	Session session.ID     `json:"session"`
	Why     string         `json:"why"`
	For     []session.Wait `json:"for,omitempty"`
}

// What a session may wait for that its log says nothing of: a worker at all, or one
// that has what the session needs.
const (
	WaitWorker    session.WaitKind = "worker"
	WaitWorkspace session.WaitKind = "workspace" // LABEL:PATH
	WaitLabel     session.WaitKind = "label"
	WaitTier      session.WaitKind = "tier"
)

// Drives reports whether the worker's loop for a session's epoch is alive.
func (a Alive) Drives(id session.ID, epoch uint64) bool {
	return slices.Contains(a.Claims, AliveClaim{Session: id, Epoch: epoch})
}

// ReadAlive decodes what the liveness bucket holds, by worker. A worker whose value
// cannot be read, or is not its own, is there all the same: it drives nothing that
// anybody could know of, and has confirmed nothing.
func ReadAlive(values map[string][]byte) map[string]Alive {
	all := make(map[string]Alive, len(values))
	for worker, value := range values {
		var a Alive
		if json.Unmarshal(value, &a) != nil || a.Worker != worker {
			a = Alive{Worker: worker}
		}
		all[worker] = a
	}
	return all
}
