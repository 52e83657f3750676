package session

import (
	"reflect"
	"slices"
)

// Type is an event's type on the wire. Types are append-only and never reused.
type Type string

// The catalogue's types.
const (
	TypeEndSeed          Type = "session/end-seed"
	TypeSandboxMode      Type = "sandbox/mode"
	TypeApprovalPolicy   Type = "approval/policy"
	TypePreset           Type = "permission/preset"
	TypeRelease          Type = "session/release"
	TypeFormat           Type = "session/format"
	TypeDescriptor       Type = "subagent/descriptor"
	TypeModelSelected    Type = "model/selected"
	TypeUserMessage      Type = "user/message"
	TypeConsumed         Type = "agent/inbox/consumed"
	TypeClaim            Type = "turn/claim"
	TypeTurnStart        Type = "turn/start"
	TypeTurnEnd          Type = "turn/end"
	TypeTurnPark         Type = "turn/park"
	TypeTurnWake         Type = "turn/wake"
	TypeTurnDeferred     Type = "turn/deferred"
	TypeStepStart        Type = "step/start"
	TypeStepEnd          Type = "step/end"
	TypeRequestHeader    Type = "request/header"
	TypeAssistantMessage Type = "assistant/message"
	TypeToolCall         Type = "tool/call"
	TypeToolDecision     Type = "tool/decision"
	TypeToolResult       Type = "tool/result"
	TypeApprovalAsked    Type = "approval/asked"
	TypeApprovalDecided  Type = "approval/decided"
	TypeInterrupt        Type = "turn/interrupt"
	TypeCancel           Type = "session/cancel"
	TypeNudge            Type = "session/nudge"
	TypeExpired          Type = "session/expired"
	TypeBudget           Type = "session/budget"
	TypeClosed           Type = "subagent/closed"
	TypeArchived         Type = "session/archived"
	TypeEnd              Type = "session/end"
)

// Spec is one row of the catalogue (SPEC 3.2).
type Spec struct {
	Type    Type
	Classes []Class
	// Model says that the model sees the event; the others are log-only.
	Model bool
	// Fold says in a few words what the event does to the fold.
	Fold  string
	make  func() Payload
	codec codec
}

// In reports whether a record of class c may hold the event.
func (s Spec) In(c Class) bool { return slices.Contains(s.Classes, c) }

// Payload returns a new, empty payload of the row's type.
func (s Spec) Payload() Payload { return s.make() }

// Catalogue lists every event type of this format, in the order of the docs.
func Catalogue() []Spec { return slices.Clone(catalogue) }

// specOf finds the row of a type.
func specOf(t Type) (Spec, bool) {
	s, ok := specs[t]
	return s, ok
}

// catalogue and specs are tables: built once, never written again.
var (
	catalogue = buildCatalogue()
	specs     = indexCatalogue(catalogue)
)

func indexCatalogue(rows []Spec) map[Type]Spec {
	m := make(map[Type]Spec, len(rows))
	for _, s := range rows {
		m[s.Type] = s
	}
	return m
}

func row[P any, PP interface {
	*P
	Payload
}](model bool, fold string, classes ...Class,
) Spec {
	return Spec{
		Type: PP(new(P)).Type(), Classes: classes, Model: model, Fold: fold,
		make: func() Payload { return PP(new(P)) }, codec: codecOf(reflect.TypeFor[P]()),
	}
}

func buildCatalogue() []Spec {
	const (
		gen, pol, inb, trn = ClassGenesis, ClassPolicy, ClassInbox, ClassTurn
		seed               = ClassSeed
	)
	return []Spec{
		row[EndSeed](false, "ends the seed", gen, seed),
		row[SandboxSwitch](false, "sets the sandbox override", gen, pol, seed),
		row[ApprovalSwitch](false, "sets the approval override", gen, pol, seed),
		row[PresetSwitch](false, "sets the preset identity", gen, pol, seed),
		row[Release](false, "skips the named records; the sandbox override becomes read-only", pol),
		row[FormatRaised](false, "raises the format of later records", pol),
		row[Descriptor](false, "identifies a child, its mode and its tool filter", gen, seed),
		row[ModelSelected](false, "selects the model", gen, seed),
		row[UserMessage](true, "joins the inbox; in class turn it is runtime context", gen, inb, trn, seed),
		row[Consumed](false, "takes messages out of the inbox", trn, seed),
		row[Claim](false, "raises the epoch; ends a park's hold", trn),
		row[TurnStart](false, "opens a turn", trn, seed),
		row[TurnEnd](false, "ends the turn; the cut of later forks", trn, seed),
		row[TurnPark](false, "parks the turn", trn),
		row[TurnWake](false, "wakes the turn", trn),
		row[TurnDeferred](false, "leaves consumed input for later", trn),
		row[StepStart](false, "opens a step", trn, seed),
		row[StepEnd](false, "ends the step", trn, seed),
		row[RequestHeader](false, "says where a model request goes", trn, seed),
		row[AssistantMessage](true, "adds a model step; its calls follow", trn, seed),
		row[ToolCall](true, "adds an undecided call", trn, seed),
		row[ToolDecision](false, "decides a call; in a genesis it starts a child", trn, seed),
		row[ToolResult](true, "ends a call", trn, seed),
		row[ApprovalAsked](false, "opens a question", trn, seed),
		row[ApprovalDecided](false, "ends a question; granting only in class inbox", trn, inb, seed),
		row[Interrupt](false, "stops the named turn", inb),
		row[Cancel](false, "asks for the session's end", inb),
		row[Nudge](false, "nothing: it wakes a driver", inb),
		row[Expired](false, "ends an unanswered question", inb),
		row[Budget](false, "asks for the session's end for want of budget", inb),
		row[Closed](false, "frees the child's slot", inb),
		row[Archived](false, "marks the session as put away", inb),
		row[End](false, "ends the session, once", trn, inb),
	}
}
