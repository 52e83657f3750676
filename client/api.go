package client

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// APIVersion is the version that every request and reply names.
const APIVersion = 1

// Subject prefixes of requests.
const (
	SubjectAPI    = "entail.api.v1."
	SubjectWorker = "entail.worker."
)

// The methods for people and programs.
const (
	MethodInfo          = "info"
	MethodSchemas       = "schemas"
	MethodCreate        = "session_create"
	MethodFork          = "session_fork"
	MethodList          = "session_list"
	MethodShow          = "session_show"
	MethodTree          = "session_tree"
	MethodEvents        = "session_events"
	MethodRecords       = "session_records"
	MethodSend          = "session_send"
	MethodInterrupt     = "session_interrupt"
	MethodCancel        = "session_cancel"
	MethodRelease       = "session_release"
	MethodApprovals     = "approval_list"
	MethodApproval      = "approval_show"
	MethodAnswer        = "approval_answer"
	MethodPolicySet     = "policy_set"
	MethodPolicyGet     = "policy_get"
	MethodPolicyExplain = "policy_explain"
	MethodCallExplain   = "call_explain"
	MethodCallSettle    = "call_settle"
	MethodConfigGet     = "config_get"
	MethodConfigSet     = "config_set"
	MethodConfigHistory = "config_history"
	MethodWorkerList    = "worker_list"
	MethodWorkerSet     = "worker_set"
	MethodWorkerHistory = "worker_history"
)

// The methods for workers.
const (
	MethodDelegate = "delegate"
	MethodRelay    = "relay"
	MethodSettled  = "settled"
	MethodEmpty    = "empty"
	MethodCold     = "cold"
)

// Position is a place in a partition's stream. A reply names the newest one it
// speaks of; a request that brings it back, in the header HeaderAfter, is answered
// at least that new.
type Position struct {
	Partition int    `json:"partition"`
	Sequence  uint64 `json:"sequence"`
}

// HeaderAfter is the header, once for each partition, in which a request brings
// back the positions that earlier replies named, as partition:sequence.
const HeaderAfter = "Entail-After"

// String writes a position as HeaderAfter has it.
func (p Position) String() string {
	return strconv.Itoa(p.Partition) + ":" + strconv.FormatUint(p.Sequence, 10)
}

// ParsePosition reads what String wrote.
func ParsePosition(s string) (Position, error) {
	partition, sequence, _ := strings.Cut(s, ":")
	var p Position
	var errP, errS error
	p.Partition, errP = strconv.Atoi(partition)
	p.Sequence, errS = strconv.ParseUint(sequence, 10, 64)
	if errP != nil || errS != nil || p.String() != s {
		return Position{}, fmt.Errorf("position %q is not partition:sequence", s)
	}
	return p, nil
}

// Head is in every request.
type Head struct {
	Version int `json:"v"`
}

// Reply is every answer: a result or an error, never both.
type Reply struct {
	Version  int             `json:"v"`
	Position *Position       `json:"position,omitempty"`
	Error    *Error          `json:"error,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
}

// Done is the result of a request that has no other.
type Done struct{}

// InfoReply says what a deployment is.
type InfoReply struct {
	Version    string          `json:"version"`
	Partitions int             `json:"partitions"`
	Format     int             `json:"format"`
	Revision   uint64          `json:"revision"`
	Settings   policy.Settings `json:"settings"`
	Durability string          `json:"durability"`
	Models     []string        `json:"models,omitempty"`
}

// Model names the model of a new tree. Script is the text of a scripted one.
type Model struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Script   string `json:"script,omitempty"`
}

// MethodSchema is one method of the service: who may call it, and the JSON
// schemas of its request and of its result.
type MethodSchema struct {
	Method  string          `json:"method"`
	Subject string          `json:"subject"`
	Role    string          `json:"role"`
	Request json.RawMessage `json:"request"`
	Result  json.RawMessage `json:"result"`
}

// SchemasReply lists every method.
type SchemasReply struct {
	Methods []MethodSchema `json:"methods"`
}

// CreateRequest starts a root. Every field but ID and Traceparent is part of the
// request's digest.
type CreateRequest struct {
	Head
	ID          session.ID             `json:"id"`
	Cwd         string                 `json:"cwd"`
	Label       string                 `json:"label,omitempty"`
	Surface     session.Surface        `json:"surface,omitempty"`
	Model       Model                  `json:"model"`
	Prompt      string                 `json:"prompt,omitempty"`
	Sandbox     session.SandboxMode    `json:"sandbox,omitempty"`
	Approvals   session.ApprovalPolicy `json:"approvals,omitempty"`
	Preset      session.Preset         `json:"preset,omitempty"`
	Traceparent string                 `json:"traceparent,omitempty"`
	// Workspace is the label of the place that Cwd is in, and WorkspaceKind its kind
	// (SPEC 7.9). Default shared and "default".
	Workspace     string                `json:"workspace,omitempty"`
	WorkspaceKind session.WorkspaceKind `json:"workspaceKind,omitempty"`
	// WorkerLabels and RequireTier are what a worker must have to drive the session
	// and all below it.
	WorkerLabels []string     `json:"workerLabels,omitempty"`
	RequireTier  session.Tier `json:"requireTier,omitempty"`
}

// ForkRequest starts a person's fork of a session (SPEC 1.8).
type ForkRequest struct {
	Head
	ID          session.ID `json:"id"`
	Source      session.ID `json:"source"`
	Label       string     `json:"label,omitempty"`
	Prompt      string     `json:"prompt,omitempty"`
	Traceparent string     `json:"traceparent,omitempty"`
}

// CreatedReply names the session that a request started, now or before.
type CreatedReply struct {
	ID       session.ID `json:"id"`
	Existing bool       `json:"existing,omitempty"`
}

// SessionRequest asks about one session.
type SessionRequest struct {
	Head
	ID session.ID `json:"id"`
}

// ListRequest asks for sessions, oldest first.
type ListRequest struct {
	Head
	Root    session.ID     `json:"root,omitempty"`
	Parent  session.ID     `json:"parent,omitempty"`
	Origin  session.Origin `json:"origin,omitempty"`
	AfterID session.ID     `json:"afterId,omitempty"`
	Limit   int            `json:"limit,omitempty"`
}

// Status is the one state of a session, derived from its log and from how its driver
// lives (SPEC 7.5). It is as new as the mirror of the coordinator that answers and
// its last look at the signs of life, of which a worker gives six in a lease.
type Status string

// The states, in the order in which they are looked for.
const (
	// StatusStopped is a session that does not go on by itself: nobody can fold its
	// log, its partition is lost, or it is quarantined. Stopped says why.
	StatusStopped Status = "stopped"
	// StatusEnded is a session that takes no more: its log has its end. Outcome is
	// how it went.
	StatusEnded Status = "ended"
	// StatusRunning is an open turn whose driver lives. Since, Elapsed and Current
	// say since when and what runs now.
	StatusRunning Status = "running"
	// StatusStalled is something to do that nobody does, though nobody was lost. An
	// open turn is stalled when its driver has missed two signs of life in a row
	// and its lease is not over, or lives and does not list the claim: its loop has
	// made no progress within the limit of its step. Where no turn is open it is
	// input that nobody has taken for two leases.
	StatusStalled Status = "stalled"
	// StatusLost is an open turn whose driver is gone: it died or was cut off, its
	// claim has run out, and nobody has taken the turn over yet.
	StatusLost Status = "lost"
	// StatusWaiting is a session that waits for what WaitsFor names: a child or an
	// answer, which its log says, a worker to take it, or one that has what it
	// needs; then Why says what workers say that left it.
	StatusWaiting Status = "waiting"
	// StatusIdle is a session with nothing to do that may be sent more. Outcome is
	// how its last turn ended.
	StatusIdle Status = "idle"
)

// What a driver does.
const (
	DoingModel = "model" // it waits for the model's answer
	DoingCall  = "call"  // a call runs
)

// Doing is one thing that a driver does now. Times are in milliseconds, Since as the
// log has it.
type Doing struct {
	What    string         `json:"what"`
	Call    session.CallID `json:"call,omitempty"`
	Tool    string         `json:"tool,omitempty"`
	Since   int64          `json:"since"`
	Elapsed int64          `json:"elapsed"`
}

// Summary is a session as listings show it.
type Summary struct {
	Header    session.Header         `json:"header"`
	Status    Status                 `json:"status"`
	Outcome   session.EndOutcome     `json:"outcome,omitempty"`
	WaitsFor  []session.Wait         `json:"waitsFor,omitempty"`
	LastEnd   *session.TurnMark      `json:"lastEnd,omitempty"`
	Next      session.Seq            `json:"next"`
	Tail      uint64                 `json:"tail"`
	Turn      int                    `json:"turn"`
	Steps     int                    `json:"steps"`
	Calls     int                    `json:"calls"`
	Denials   int                    `json:"denials"`
	Text      bool                   `json:"text"`
	Pending   int                    `json:"pending"`
	Children  []session.ID           `json:"children,omitempty"`
	Sandbox   session.SandboxMode    `json:"sandbox"`
	Approvals session.ApprovalPolicy `json:"approvals"`
	Preset    session.Preset         `json:"preset"`
	Voids     int                    `json:"voids,omitempty"`
	Stopped   string                 `json:"stopped,omitempty"`
	// Since is when the open turn began, LastTime when the last event was written,
	// both as the log has them; Elapsed and Age are how long ago that was. All are
	// in milliseconds.
	Since    int64 `json:"since,omitempty"`
	Elapsed  int64 `json:"elapsed,omitempty"`
	LastTime int64 `json:"lastTime,omitempty"`
	Age      int64 `json:"age,omitempty"`
	// Current is what the driver of an open turn does, or did last if it is stalled
	// or lost.
	Current []Doing `json:"current,omitempty"`
	// Why is what workers say that do not drive a session which has something to
	// do.
	Why    string `json:"why,omitempty"`
	Worker string `json:"worker,omitempty"`
	Open   bool   `json:"open,omitempty"`
	// Link is the link after the log's last event, Overrides what the mirror has
	// folded of the three knobs. Only verify needs them.
	Link      session.Link `json:"link"`
	Overrides Overrides    `json:"overrides"`
}

// Overrides are the values that a log itself set; an empty one was never set.
type Overrides struct {
	Sandbox  session.SandboxMode    `json:"sandbox,omitempty"`
	Approval session.ApprovalPolicy `json:"approval,omitempty"`
	Preset   session.Preset         `json:"preset,omitempty"`
}

// ListReply holds sessions. Lost says which partitions are stopped: of their
// sessions it holds what was mirrored before. More says that others follow the last
// one: a page has at most as many as were asked for, and as fit an answer.
type ListReply struct {
	Sessions []Summary `json:"sessions"`
	Lost     []string  `json:"lost,omitempty"`
	More     bool      `json:"more,omitempty"`
}

// EventsRequest reads a log from a seq on. With Wait it waits, at most so many
// milliseconds, until there is something to read.
type EventsRequest struct {
	Head
	ID    session.ID  `json:"id"`
	From  session.Seq `json:"from,omitempty"`
	Limit int         `json:"limit,omitempty"`
	Wait  int         `json:"wait,omitempty"`
}

// EventsReply holds event lines as they are stored, and the class of each.
type EventsReply struct {
	Lines   []json.RawMessage `json:"lines"`
	Classes []session.Class   `json:"classes"`
	Next    session.Seq       `json:"next"`
	Summary Summary           `json:"summary"`
}

// RawRecord is a record as it stands in the stream.
type RawRecord struct {
	StreamSeq uint64            `json:"streamSeq"`
	Session   session.ID        `json:"session"`
	Class     session.Class     `json:"class"`
	Creator   session.ID        `json:"creator,omitempty"`
	Headers   map[string]string `json:"headers"`
	Body      []byte            `json:"body"`
}

// Raw returns r as package session reads it.
func (r RawRecord) Raw() session.Raw {
	return session.Raw{
		StreamSeq: r.StreamSeq, Headers: r.Headers, Body: r.Body,
		Address: session.Address{Session: r.Session, Class: r.Class, Creator: r.Creator},
	}
}

// FromRaw returns a raw record as it travels.
func FromRaw(r session.Raw) RawRecord {
	return RawRecord{
		StreamSeq: r.StreamSeq, Headers: r.Headers, Body: r.Body,
		Session: r.Address.Session, Class: r.Address.Class, Creator: r.Address.Creator,
	}
}

// RecordsRequest reads a session's raw records after a stream sequence, its
// genesis first.
type RecordsRequest struct {
	Head
	ID    session.ID `json:"id"`
	From  uint64     `json:"from,omitempty"`
	Limit int        `json:"limit,omitempty"`
}

// RecordsReply holds raw records; More says that others follow.
type RecordsReply struct {
	Records []RawRecord `json:"records"`
	More    bool        `json:"more,omitempty"`
}

// SendRequest puts a message into a session's inbox. The same request again is the same
// message; another one under its MessageID is refused with CodeIDTaken.
type SendRequest struct {
	Head
	ID        session.ID `json:"id"`
	MessageID string     `json:"messageId"`
	Content   string     `json:"content"`
}

// StopRequest interrupts the open turn of a session or cancels the session. The same
// request again is of the turn that it was of; another one under its RequestID is refused
// with CodeIDTaken.
type StopRequest struct {
	Head
	ID        session.ID `json:"id"`
	RequestID string     `json:"requestId"`
	Reason    string     `json:"reason,omitempty"`
}

// StopReply says what the request came to.
type StopReply struct {
	Turn int    `json:"turn,omitempty"`
	Note string `json:"note,omitempty"`
}

// Approval is a question about a call that waits for a person (SPEC 5.6).
type Approval struct {
	Session session.ID     `json:"session"`
	Label   string         `json:"label,omitempty"`
	Ask     string         `json:"ask"`
	Call    session.CallID `json:"call"`
	Tool    string         `json:"tool"`
	// Arguments are the call's, as the model gave them. Listings show the beginning.
	Arguments string              `json:"arguments"`
	Have      session.SandboxMode `json:"have"` // the mode of the session's calls
	Want      session.SandboxMode `json:"want"` // the mode that is asked for
	Reason    string              `json:"reason"`
	Digest    string              `json:"digest"`
	// AskedAt and ExpiresAt are in milliseconds since 1970, by the log's own clock.
	AskedAt   int64 `json:"askedAt"`
	ExpiresAt int64 `json:"expiresAt"`
	// Stale says that a switch or a new default came after the question: an answer
	// would not count.
	Stale bool `json:"stale,omitempty"`
}

// ApprovalsRequest asks for the questions that wait, by session and call. With Root
// those of one tree.
type ApprovalsRequest struct {
	Head
	Root session.ID `json:"root,omitempty"`
	// AfterID is the last session of the page before.
	AfterID session.ID `json:"afterId,omitempty"`
	Limit   int        `json:"limit,omitempty"`
}

// ApprovalsReply holds questions. More says that sessions behind the last one ask, too.
// Lost says which partitions are stopped: of their questions none can be answered.
type ApprovalsReply struct {
	Approvals []Approval `json:"approvals"`
	More      bool       `json:"more,omitempty"`
	Lost      []string   `json:"lost,omitempty"`
}

// ApprovalRequest names a question. Without Ask it is the session's only one.
type ApprovalRequest struct {
	Head
	ID  session.ID `json:"id"`
	Ask string     `json:"ask,omitempty"`
}

// ApprovalReply is a question with all that an answer may rest on.
type ApprovalReply struct {
	Approval
	Values []policy.Explained `json:"values"`
}

// AnswerRequest answers a question. What is offered is allowed-once and rejected;
// any other answer counts as rejected (SPEC 5.7). A question has one answer: the same
// one from the same person again changes nothing. Message is put into the session's
// inbox beside it.
type AnswerRequest struct {
	Head
	ID      session.ID      `json:"id"`
	Ask     string          `json:"ask"`
	Outcome session.Outcome `json:"outcome"`
	Message string          `json:"message,omitempty"`
}

// AnswerReply says what the log holds of a question now. Its outcome is cancelled if
// the answer came too late to count.
type AnswerReply struct {
	Ask     string          `json:"ask"`
	Outcome session.Outcome `json:"outcome"`
	Note    string          `json:"note,omitempty"`
}

// ReleaseRequest lets a stopped session go on (SPEC 1.7).
type ReleaseRequest struct {
	Head
	ID     session.ID `json:"id"`
	Reason string     `json:"reason"`
}

// ReleaseReply names what is skipped. Of a session that was quarantined, that is
// nothing: its log is whole.
type ReleaseReply struct {
	Skipped []uint64 `json:"skipped"`
}

// PolicySetRequest changes one knob of a session: exactly one field is set.
type PolicySetRequest struct {
	Head
	ID        session.ID             `json:"id"`
	Sandbox   session.SandboxMode    `json:"sandbox,omitempty"`
	Approvals session.ApprovalPolicy `json:"approvals,omitempty"`
	Preset    session.Preset         `json:"preset,omitempty"`
}

// PolicyReply is the policy of a session after the request.
type PolicyReply struct {
	Sandbox   session.SandboxMode    `json:"sandbox"`
	Approvals session.ApprovalPolicy `json:"approvals"`
	Preset    session.Preset         `json:"preset"`
	Events    int                    `json:"events"`
	Note      string                 `json:"note,omitempty"`
}

// ExplainReply tells where each value of a session's policy came from.
type ExplainReply struct {
	Values []policy.Explained `json:"values"`
}

// CallRequest asks why a call was allowed or denied.
type CallRequest struct {
	Head
	ID   session.ID     `json:"id"`
	Call session.CallID `json:"call"`
}

// CallReply is a call and what was decided of it.
type CallReply struct {
	Call      session.ToolCall       `json:"call"`
	CallSeq   session.Seq            `json:"callSeq"`
	Decisions []session.ToolDecision `json:"decisions"`
	Result    *session.ToolResult    `json:"result,omitempty"`
	Values    []policy.Explained     `json:"values"`
	// Settled is what a person has established of an unknown outcome.
	Settled *Settled `json:"settled,omitempty"`
}

// Execution is what a person has established of a call whose outcome was unknown
// (SPEC 5.9).
type Execution string

// The two that there are.
const (
	Executed    Execution = "executed"
	NotExecuted Execution = "not-executed"
)

// Settled says who has established what, with the seq of the message that says so.
type Settled struct {
	Execution Execution      `json:"execution"`
	By        *session.Party `json:"by,omitempty"`
	Seq       session.Seq    `json:"seq"`
	Text      string         `json:"text"`
}

// SettleRequest says of a call whose result is TOOL_OUTCOME_UNKNOWN whether it was
// executed. The session is told by a message. A call is settled once: the same again, in
// the same words, changes nothing.
type SettleRequest struct {
	Head
	ID        session.ID     `json:"id"`
	Call      session.CallID `json:"call"`
	Execution Execution      `json:"execution"`
	Message   string         `json:"message,omitempty"`
}

// SettleReply is what stands in the log of the call now.
type SettleReply struct {
	Settled
	// Existing says that it stood there before.
	Existing bool `json:"existing,omitempty"`
}

// ConfigReply is the deployment's settings at a revision.
type ConfigReply struct {
	Revision   uint64          `json:"revision"`
	Settings   policy.Settings `json:"settings"`
	Stragglers []string        `json:"stragglers,omitempty"`
}

// ConfigSetRequest changes settings, by the names that config_get shows: a path
// like defaults.sandbox and a JSON value.
type ConfigSetRequest struct {
	Head
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

// ConfigChange is one entry of the settings' history.
type ConfigChange struct {
	Revision uint64          `json:"revision"`
	Time     int64           `json:"time"`
	By       session.Party   `json:"by"`
	Settings policy.Settings `json:"settings"`
}

// ConfigHistoryReply is the settings' history, oldest first.
type ConfigHistoryReply struct {
	Changes []ConfigChange `json:"changes"`
}
