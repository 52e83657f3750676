package policy

import "github.com/entail-fleet/entail/session"

// A Decision is what Decide says of one call. It is exactly one of [Permit],
// [Denial] and [Question].
//
//sumtype:decl
type Decision interface {
	// Record returns the decision as it stands in the log.
	Record() session.ToolDecision
	sealed()
}

// A Permit lets one call run under one mode. Its fields are out of reach, so it
// can only come from [Decide]; the zero Permit permits nothing. It is the only
// door to the sandbox.
type Permit struct {
	session session.ID
	record  session.ToolDecision
	terms   Confinement
}

// Sealed reports whether p came from this package. Whoever acts on a permit
// checks it first.
func (p Permit) Sealed() bool {
	return p.session != "" && p.record.Verdict == session.Allow && p.record.Mode.Valid()
}

// Mode is the widest the call may be.
func (p Permit) Mode() session.SandboxMode { return p.record.Mode }

// Network is what the call may reach.
func (p Permit) Network() session.Network { return p.record.Network }

// Terms are the deployment's, as they were when the call was decided.
func (p Permit) Terms() Confinement { return p.terms }

// Session is the session whose call is permitted.
func (p Permit) Session() session.ID { return p.session }

// Call is the permitted call.
func (p Permit) Call() session.CallID { return p.record.CallID }

// Record returns the decision as it stands in the log.
func (p Permit) Record() session.ToolDecision { return p.record }

func (Permit) sealed() {}

// A Denial is data, not an error: it is appended to the log and shown to the
// model.
type Denial struct {
	record  session.ToolDecision
	text    string
	code    string
	asked   *session.ApprovalAsked
	outcome session.Outcome
}

// Record returns the decision as it stands in the log.
func (d Denial) Record() session.ToolDecision { return d.record }

// Text is what the model is shown.
func (d Denial) Text() string { return d.text }

// Code is the code of the call's result, if the refusal has one.
func (d Denial) Code() string { return d.code }

// Asked returns the question that the denial answered without asking anybody.
// It and its outcome are logged right before the decision.
func (d Denial) Asked() (session.ApprovalAsked, session.Outcome, bool) {
	if d.asked == nil {
		return session.ApprovalAsked{}, "", false
	}
	return *d.asked, d.outcome, true
}

func (Denial) sealed() {}

// A Question needs an answer from a person before the call can be decided
// (SPEC 5.6).
type Question struct {
	record session.ToolDecision
	ask    session.ApprovalAsked
}

// Record returns the decision as it stands in the log.
func (q Question) Record() session.ToolDecision { return q.record }

// Ask is the question as it stands in the log, right after the decision.
func (q Question) Ask() session.ApprovalAsked { return q.ask }

func (Question) sealed() {}
