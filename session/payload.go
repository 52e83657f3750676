package session

// Payload is the data of an event whose type is in the catalogue. Its check
// holds the event to the closed vocabularies and to the form of its fields,
// without looking at any other event.
type Payload interface {
	// Type is the event's type on the wire.
	Type() Type
	check() error
}

// Party says who caused an event. It is a value, never a proof: the broker's
// class permission is what makes it count.
type Party struct {
	Kind PartyKind `json:"kind"`
	ID   string    `json:"id"`
}

// PartyKind is what a party is.
type PartyKind string

// The kinds of party.
const (
	Person         PartyKind = "person"
	Program        PartyKind = "program"
	SessionParty   PartyKind = "session"
	CoordinatorOwn PartyKind = "coordinator"
)

// Extent is what an end event carries so that a span can be made from it alone
// (SPEC 8.2). Duration is monotonic and only there when start and end are of one
// incarnation.
type Extent struct {
	StartSeq    Seq    `json:"startSeq"`
	StartTime   int64  `json:"startTime"`
	Worker      string `json:"worker"`
	Incarnation string `json:"incarnation"`
	Attempt     int    `json:"attempt"`
	DurationNs  *int64 `json:"durationNs,omitempty"`
}

// EndSeed marks the end of a log's seed; it is the first own event of a seeded
// session (SPEC 1.2).
type EndSeed struct {
	Inherited bool `json:"inherited,omitempty"`
}

// SandboxSwitch sets the sandbox mode.
type SandboxSwitch struct {
	Mode   SandboxMode `json:"mode"`
	Source Source      `json:"source,omitempty"`
	By     *Party      `json:"by,omitempty"`
}

// ApprovalSwitch sets the approval policy.
type ApprovalSwitch struct {
	Policy ApprovalPolicy `json:"policy"`
	Source Source         `json:"source,omitempty"`
	By     *Party         `json:"by,omitempty"`
}

// PresetSwitch records a preset identity.
type PresetSwitch struct {
	Preset Preset `json:"preset"`
	By     *Party `json:"by,omitempty"`
}

// Release lets a stopped session go on without the named stream sequences
// (SPEC 1.7). Seq and Link are where the chain goes on.
type Release struct {
	Skip   []uint64 `json:"skip"`
	Seq    Seq      `json:"seq"`
	Link   Link     `json:"link"`
	Reason string   `json:"reason"`
	By     *Party   `json:"by,omitempty"`
}

// FormatRaised raises the format of a session's later records (SPEC 1.4).
type FormatRaised struct {
	FormatVersion int    `json:"formatVersion"`
	By            *Party `json:"by,omitempty"`
}

// ToolFilter limits the tools of a child and of all below it (SPEC 4.11). A nil
// Allow allows every tool; an empty one allows none.
type ToolFilter struct {
	Allow *[]string `json:"allow,omitempty"`
	Deny  []string  `json:"deny,omitempty"`
}

// Descriptor identifies a child as a child.
type Descriptor struct {
	Version    int         `json:"version"`
	Mode       Mode        `json:"mode"`
	Provider   Kind        `json:"provider"`
	Label      string      `json:"label"`
	Persona    string      `json:"persona,omitempty"`
	ToolFilter *ToolFilter `json:"toolFilter,omitempty"`
}

// ModelSelected names the model that answers the session's requests.
type ModelSelected struct {
	Provider string  `json:"provider"`
	Model    string  `json:"model"`
	Script   *Script `json:"script,omitempty"`
}

// Script is the scripted model's text, in a root, or where it stands, below one.
type Script struct {
	Text    string `json:"text,omitempty"`
	Session ID     `json:"session,omitempty"`
	Seq     *Seq   `json:"seq,omitempty"`
	SHA256  string `json:"sha256"`
}

// UserMessage is a message to the model that no model wrote.
type UserMessage struct {
	ID      string        `json:"id"`
	Role    string        `json:"role"`
	Content string        `json:"content"`
	Source  MessageSource `json:"source"`
	By      *Party        `json:"by,omitempty"`
}

// MessageSource says where a message came from. A notice names the turn and the
// seq of its turn/end and the outcome; runtime context names its sections.
type MessageSource struct {
	Kind            MessageKind `json:"kind"`
	Form            string      `json:"form,omitempty"`
	Plugin          string      `json:"plugin,omitempty"`
	SenderSessionID ID          `json:"senderSessionId,omitempty"`
	Summary         string      `json:"summary,omitempty"`
	Turn            int         `json:"turn,omitempty"`
	Seq             Seq         `json:"seq,omitempty"`
	Outcome         string      `json:"outcome,omitempty"`
	Sections        []string    `json:"sections,omitempty"`
}

// MessageKind is the kind of a message's source.
type MessageKind string

// The kinds of message source. Plugin is a driver's own: runtime context and
// narration.
const (
	FromUser    MessageKind = "user"
	FromAgent   MessageKind = "agent-message"
	FromSettled MessageKind = "subagent-settled"
	FromReport  MessageKind = "report"
	FromPlugin  MessageKind = "plugin"
)

// Consumed says that the model sees these messages from here on, in this order.
type Consumed struct {
	Turn int   `json:"turn"`
	Step int   `json:"step,omitempty"`
	Seqs []Seq `json:"seqs"`
}

// Claim says that a worker drives the session from here on.
type Claim struct {
	Epoch       uint64 `json:"epoch"`
	Worker      string `json:"worker"`
	Incarnation string `json:"incarnation"`
	Cause       Cause  `json:"cause"`
}

// Cause is why a claim was made.
type Cause string

// The causes of a claim.
const (
	CauseStart    Cause = "start"
	CauseTakeover Cause = "takeover"
	CauseWake     Cause = "wake"
)

// TurnStart opens a turn.
type TurnStart struct {
	Turn int `json:"turn"`
}

// TurnEnd ends a turn.
type TurnEnd struct {
	Turn   int       `json:"turn"`
	Reason EndReason `json:"reason"`
	Extent
}

// ByDisposal is who ended a turn whose processes or files could not be given up: its
// end is an error, whatever it came to (SPEC 7.7).
const ByDisposal = "disposal"

// EndReason says why a turn ended. By is who, for an aborted one, and [ByDisposal].
type EndReason struct {
	Kind    EndKind `json:"kind"`
	By      string  `json:"by,omitempty"`
	Message string  `json:"message,omitempty"`
}

// EndKind is the kind of a turn's end.
type EndKind string

// The kinds of a turn's end.
const (
	EndCompleted   EndKind = "completed"
	EndAborted     EndKind = "aborted"
	EndBlocked     EndKind = "blocked"
	EndError       EndKind = "error"
	EndMaxTokens   EndKind = "max-tokens"
	EndRefusal     EndKind = "refusal"
	EndInterrupted EndKind = "interrupted"
)

// TurnPark says that the turn waits and that nobody drives it.
type TurnPark struct {
	Turn     int    `json:"turn"`
	WaitsFor []Wait `json:"waitsFor"`
}

// Wait is one thing a parked turn waits for: a child's id or an ask's.
type Wait struct {
	Kind WaitKind `json:"kind"`
	ID   string   `json:"id"`
}

// WaitKind is the kind of thing a parked turn waits for.
type WaitKind string

// The kinds of wait.
const (
	WaitChild    WaitKind = "child"
	WaitApproval WaitKind = "approval"
)

// TurnWake goes on with a parked turn.
type TurnWake struct {
	Turn int `json:"turn"`
}

// TurnDeferred says that consumed input is left for later, until when, and why.
type TurnDeferred struct {
	Seqs  []Seq  `json:"seqs"`
	Until int64  `json:"until"`
	Why   string `json:"why"`
}

// StepStart opens a step: one model request and its calls.
type StepStart struct {
	Turn int `json:"turn"`
	Step int `json:"step"`
}

// StepEnd ends a step.
type StepEnd struct {
	Turn int `json:"turn"`
	Step int `json:"step"`
	Extent
}

// RequestHeader says, before a model request is sent, where it goes and which
// tools it offers.
type RequestHeader struct {
	Turn     int      `json:"turn"`
	Step     int      `json:"step"`
	Provider string   `json:"provider"`
	Model    string   `json:"model"`
	Tools    []string `json:"tools"`
	System   string   `json:"system"`
	Attempt  int      `json:"attempt"`
}

// AssistantMessage is a model's whole answer. Calls are named by index; their
// arguments stand in the tool/call events that follow in the same record.
type AssistantMessage struct {
	Turn    int    `json:"turn"`
	Step    int    `json:"step"`
	Content string `json:"content"`
	Calls   []int  `json:"calls,omitempty"`
	Model   string `json:"model,omitempty"`
	Finish  string `json:"finish,omitempty"`
	Usage   *Usage `json:"usage,omitempty"`
	Extent
}

// Usage is what a model request cost, in tokens.
type Usage struct {
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
	CachedTokens int64 `json:"cachedTokens,omitempty"`
}

// ToolCall is one call of an assistant message. CallID is ours (SPEC 4.5);
// ModelID is the model's own and only data.
type ToolCall struct {
	Turn      int    `json:"turn"`
	Step      int    `json:"step"`
	Index     int    `json:"index"`
	CallID    CallID `json:"callId"`
	ModelID   string `json:"modelId,omitempty"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// ToolDecision is what was decided of a call, committed at the tail it was
// decided on (SPEC 5.1, 5.2). Child and ChildLink stand in the allowing decision
// of a delegating call only; Final says that asking again cannot help.
type ToolDecision struct {
	CallID    CallID      `json:"callId"`
	Verdict   Verdict     `json:"verdict"`
	Mode      SandboxMode `json:"mode"`
	Network   Network     `json:"network,omitempty"` // of what is allowed
	Basis     Basis       `json:"basis"`
	By        Stage       `json:"by"`
	Reason    string      `json:"reason,omitempty"`
	Final     bool        `json:"final,omitempty"`
	Grant     string      `json:"grant,omitempty"`
	Child     ID          `json:"child,omitempty"`
	ChildLink *Link       `json:"childLink,omitempty"`
	Revision  uint64      `json:"revision"`
	Settings  string      `json:"settings,omitempty"`
	Defaults  *Defaults   `json:"defaults,omitempty"`
	// LeftOut names, in order, the capabilities that the deployment had not when
	// a delegation was decided (SPEC 2.6).
	LeftOut []Capability `json:"leftOut,omitempty"`
}

// Basis names what a decision was made from, so that it can be checked later
// from the log alone.
type Basis struct {
	Sandbox  Ground `json:"sandbox"`
	Approval Ground `json:"approval"`
	Preset   Ground `json:"preset"`
}

// Ground is one value of a basis: the seq of the event that set it, or nothing
// when the default at the decision's revision did.
type Ground struct {
	Value string `json:"value"`
	Seq   *Seq   `json:"seq,omitempty"`
}

// Defaults are the deployment's values that a delegation used.
type Defaults struct {
	Sandbox  SandboxMode    `json:"sandbox"`
	Approval ApprovalPolicy `json:"approval"`
}

// ToolResult is how a call ended. Denied says that a decision or the fence
// refused it.
type ToolResult struct {
	Turn    int    `json:"turn"`
	Step    int    `json:"step"`
	CallID  CallID `json:"callId"`
	Content string `json:"content"`
	IsError bool   `json:"isError,omitempty"`
	Code    string `json:"code,omitempty"`
	Denied  bool   `json:"denied,omitempty"`
	Child   ID     `json:"child,omitempty"`
	// Effect is of a call that a sandbox ran.
	Effect *Effect `json:"effect,omitempty"`
	Extent
}

// ApprovalAsked is a question to a person: the call, a digest of its arguments,
// the mode it wants and the basis it was asked on (SPEC 5.6).
type ApprovalAsked struct {
	ID       string      `json:"id"`
	CallID   CallID      `json:"callId"`
	ToolName string      `json:"toolName"`
	Digest   string      `json:"digest"`
	Mode     SandboxMode `json:"mode"`
	Basis    Basis       `json:"basis"`
	Reason   string      `json:"reason"`
}

// ApprovalDecided ends a question.
type ApprovalDecided struct {
	ID      string  `json:"id"`
	Outcome Outcome `json:"outcome"`
	By      *Party  `json:"by,omitempty"`
}

// Interrupt stops the named turn; on any other turn it is a no-op (SPEC 7.4).
type Interrupt struct {
	ID     string `json:"id"`
	Turn   int    `json:"turn"`
	Reason string `json:"reason,omitempty"`
	By     *Party `json:"by,omitempty"`
}

// Cancel ends the session and all below it.
type Cancel struct {
	ID     string `json:"id"`
	Reason string `json:"reason,omitempty"`
	By     *Party `json:"by,omitempty"`
}

// Nudge wakes a session that the sweep found runnable and undriven.
type Nudge struct {
	ID     string `json:"id"`
	Reason string `json:"reason,omitempty"`
	By     *Party `json:"by,omitempty"`
}

// Expired says that a question was not answered in time.
type Expired struct {
	ID     string `json:"id"`
	Ask    string `json:"ask,omitempty"`
	Reason string `json:"reason,omitempty"`
	By     *Party `json:"by,omitempty"`
}

// Budget says that the session's budget is used up.
type Budget struct {
	ID     string `json:"id"`
	Reason string `json:"reason,omitempty"`
	By     *Party `json:"by,omitempty"`
}

// Closed says, in the parent, that a child will do no more work and that its
// slot is free (SPEC 4.6).
type Closed struct {
	ID     string `json:"id"`
	Child  ID     `json:"child"`
	Reason string `json:"reason,omitempty"`
	By     *Party `json:"by,omitempty"`
}

// Archived says that the session's tree was put away.
type Archived struct {
	ID     string `json:"id"`
	Reason string `json:"reason,omitempty"`
	By     *Party `json:"by,omitempty"`
}

// End is a session's terminal event. Cancelled names the messages that were
// never consumed.
type End struct {
	Outcome   EndOutcome `json:"outcome"`
	Cancelled []Seq      `json:"cancelled,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	By        *Party     `json:"by,omitempty"`
}

// EndOutcome is how a session ended (SPEC 7.5).
type EndOutcome string

// The outcomes of a session.
const (
	OutcomeCompleted   EndOutcome = "completed"
	OutcomeDenials     EndOutcome = "completed-with-denials"
	OutcomeFailed      EndOutcome = "failed"
	OutcomeRefused     EndOutcome = "refused"
	OutcomeOutOfRoom   EndOutcome = "out-of-room"
	OutcomeInterrupted EndOutcome = "interrupted"
	OutcomeCancelled   EndOutcome = "cancelled"
	OutcomeBudget      EndOutcome = "budget"
)
