package client

import "github.com/entail-fleet/entail/session"

// The tools by which a session speaks to those of its tree. A coordinator carries them
// out; who may speak to whom it reads from the logs (SPEC 7.6).
const (
	ToolSend      = "send"
	ToolReport    = "report"
	ToolInterrupt = "interrupt"
	ToolCancel    = "cancel"
)

// Send is what the send tool takes: a message to a continuable child of the caller's own,
// by its id, or by its label where that names one.
type Send struct {
	To      string `json:"to"`
	Message string `json:"message"`
}

// Report is what the report tool takes: a message to the session that delegated.
type Report struct {
	Message string `json:"message"`
}

// Stop is what the interrupt and the cancel tool take: a session below the caller, by its
// id; a child of its own also by a label that names one.
type Stop struct {
	Session string `json:"session"`
	Reason  string `json:"reason,omitempty"`
}

// RelayRequest asks a coordinator to carry out an allowed call of one of those tools.
// What it asks for, and for whom, stands in the caller's log: in the call, and in the
// decision that allows it, which the record at Tail holds. So a worker can speak for
// the sessions that it drives and for no other. It is idempotent by the call.
type RelayRequest struct {
	Head
	Session session.ID     `json:"session"`
	Call    session.CallID `json:"call"`
	Epoch   uint64         `json:"epoch"`
	Tail    uint64         `json:"tail"`
}

// RelayReply says what came of it, in words for the model.
type RelayReply struct {
	Text string `json:"text"`
}
