package session

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// DescriptorVersion is the one version of [Descriptor] this format knows.
const DescriptorVersion = 2

// MaxName is the most bytes a label, persona name, worker name or id may have.
const MaxName = 256

func (*EndSeed) check() error { return nil }

func (p *SandboxSwitch) check() error {
	if !p.Mode.Valid() {
		return foreign(p, "mode", string(p.Mode))
	}
	return checkSource(p, p.Source, p.By)
}

func (p *ApprovalSwitch) check() error {
	if !p.Policy.Valid() {
		return foreign(p, "policy", string(p.Policy))
	}
	return checkSource(p, p.Source, p.By)
}

// A preset's name is checked against the table by whoever appends; on read an
// unknown name is well-formed and never current (SPEC 1.5).
func (p *PresetSwitch) check() error {
	if p.Preset == PresetCustom {
		return fmt.Errorf("%s carries %q, which is derived only", p.Type(), PresetCustom)
	}
	return firstErr(name(p, "preset", string(p.Preset)), party(p.By))
}

func (p *Release) check() error {
	if len(p.Skip) == 0 || !slices.IsSorted(p.Skip) {
		return fmt.Errorf("%s: skip must name stream sequences in order", p.Type())
	}
	return firstErr(need(p, "reason", p.Reason), party(p.By))
}

func (p *FormatRaised) check() error {
	if p.FormatVersion < 1 {
		return fmt.Errorf("%s: format version %d is not positive", p.Type(), p.FormatVersion)
	}
	return party(p.By)
}

func (p *Descriptor) check() error {
	if p.Version != DescriptorVersion {
		return fmt.Errorf("%s has version %d, this format knows %d", p.Type(), p.Version, DescriptorVersion)
	}
	if p.Mode != OneShot && p.Mode != Continuable {
		return foreign(p, "mode", string(p.Mode))
	}
	if p.Provider != Spawn && p.Provider != Fork {
		return foreign(p, "provider", string(p.Provider))
	}
	if p.ToolFilter != nil && p.ToolFilter.Allow == nil && len(p.ToolFilter.Deny) == 0 {
		return fmt.Errorf("%s: a tool filter holds at least one list", p.Type())
	}
	return name(p, "label", p.Label)
}

func (p *ModelSelected) check() error {
	if s := p.Script; s != nil {
		if len(s.SHA256) != 2*len(Link{}) || !isHex(s.SHA256) {
			return fmt.Errorf("%s: script sha256 is not 64 hex digits", p.Type())
		}
		if (s.Seq == nil) != (s.Session == "") || (s.Text != "" && s.Session != "") {
			return fmt.Errorf("%s: a script stands here as text or elsewhere by session and seq", p.Type())
		}
	}
	return firstErr(name(p, "provider", p.Provider), name(p, "model", p.Model))
}

func (p *UserMessage) check() error {
	if p.Role != "user" {
		return foreign(p, "role", p.Role)
	}
	return firstErr(name(p, "id", p.ID), p.Source.check(p), party(p.By))
}

func (s MessageSource) check(p Payload) error {
	switch s.Kind {
	case FromUser, FromPlugin:
		return nil
	case FromAgent, FromReport:
		return need(p, "source senderSessionId", string(s.SenderSessionID))
	case FromSettled:
		if s.Turn < 1 {
			return fmt.Errorf("%s: a notice names the turn that ended", p.Type())
		}
		return firstErr(need(p, "source senderSessionId", string(s.SenderSessionID)),
			need(p, "source outcome", s.Outcome))
	}
	return foreign(p, "source kind", string(s.Kind))
}

func (p *Consumed) check() error {
	if len(p.Seqs) == 0 || !ascending(p.Seqs) {
		return fmt.Errorf("%s: seqs must ascend and not be empty", p.Type())
	}
	return turnStep(p, p.Turn, max(p.Step, 1))
}

func (p *Claim) check() error {
	if p.Epoch < 1 {
		return fmt.Errorf("%s: epoch %d is not positive", p.Type(), p.Epoch)
	}
	if p.Cause != CauseStart && p.Cause != CauseTakeover && p.Cause != CauseWake {
		return foreign(p, "cause", string(p.Cause))
	}
	return firstErr(name(p, "worker", p.Worker), name(p, "incarnation", p.Incarnation))
}

func (p *TurnStart) check() error { return turnStep(p, p.Turn, 1) }

func (p *TurnEnd) check() error {
	switch p.Reason.Kind {
	case EndCompleted, EndAborted, EndBlocked, EndError, EndMaxTokens, EndRefusal, EndInterrupted:
		return turnStep(p, p.Turn, 1)
	}
	return foreign(p, "reason", string(p.Reason.Kind))
}

func (p *TurnPark) check() error {
	if len(p.WaitsFor) == 0 {
		return fmt.Errorf("%s: a parked turn waits for something", p.Type())
	}
	for _, w := range p.WaitsFor {
		if w.Kind != WaitChild && w.Kind != WaitApproval {
			return foreign(p, "wait", string(w.Kind))
		}
	}
	return turnStep(p, p.Turn, 1)
}

func (p *TurnWake) check() error { return turnStep(p, p.Turn, 1) }

func (p *TurnDeferred) check() error {
	if len(p.Seqs) == 0 || !ascending(p.Seqs) {
		return fmt.Errorf("%s: seqs must ascend and not be empty", p.Type())
	}
	return need(p, "why", p.Why)
}

func (p *StepStart) check() error { return turnStep(p, p.Turn, p.Step) }
func (p *StepEnd) check() error   { return turnStep(p, p.Turn, p.Step) }

func (p *RequestHeader) check() error {
	return firstErr(turnStep(p, p.Turn, p.Step), name(p, "provider", p.Provider), name(p, "model", p.Model))
}

func (p *AssistantMessage) check() error {
	for i, c := range p.Calls {
		if c != i {
			return fmt.Errorf("%s: calls are named by index, in order from 0", p.Type())
		}
	}
	return turnStep(p, p.Turn, p.Step)
}

func (p *ToolCall) check() error {
	if want := MakeCallID(p.Turn, p.Step, p.Index); p.CallID != want {
		return fmt.Errorf("%s: call id %q is not %q", p.Type(), p.CallID, want)
	}
	return firstErr(turnStep(p, p.Turn, p.Step), need(p, "name", p.Name))
}

func (p *ToolDecision) check() error {
	switch p.Verdict {
	case Allow, Deny, AskPerson:
	default:
		return foreign(p, "verdict", string(p.Verdict))
	}
	if !p.Mode.Valid() {
		return foreign(p, "mode", string(p.Mode))
	}
	if p.Network != "" && !p.Network.Valid() {
		return foreign(p, "network", string(p.Network))
	}
	if p.Network != "" && (p.Verdict != Allow || p.Child != "") {
		return fmt.Errorf("%s: network %q stands where no call is let at one", p.Type(), p.Network)
	}
	if (p.Child == "") != (p.ChildLink == nil) {
		return fmt.Errorf("%s: child and childLink stand together", p.Type())
	}
	if p.Defaults != nil && (!p.Defaults.Sandbox.Valid() || !p.Defaults.Approval.Valid()) {
		return foreign(p, "defaults", string(p.Defaults.Sandbox)+"+"+string(p.Defaults.Approval))
	}
	for i, c := range p.LeftOut {
		if !c.Valid() || (i > 0 && c <= p.LeftOut[i-1]) {
			return foreign(p, "leftOut", string(c))
		}
	}
	return firstErr(p.Basis.check(p), stage(p, p.By), callID(p, p.CallID))
}

func (b Basis) check(p Payload) error {
	if !SandboxMode(b.Sandbox.Value).Valid() {
		return foreign(p, "basis sandbox", b.Sandbox.Value)
	}
	if !ApprovalPolicy(b.Approval.Value).Valid() {
		return foreign(p, "basis approval", b.Approval.Value)
	}
	return nil
}

func stage(p Payload, s Stage) error {
	switch s {
	case StagePolicy, StageApproval, StageReviewer, StageFilter, StageDepth:
		return nil
	}
	if rule, ok := strings.CutPrefix(string(s), "rule:"); ok && rule != "" {
		return nil
	}
	return foreign(p, "by", string(s))
}

func (p *ToolResult) check() error {
	return firstErr(turnStep(p, p.Turn, p.Step), callID(p, p.CallID), p.Effect.check(p))
}

func (e *Effect) check(p Payload) error {
	switch {
	case e == nil:
		return nil
	case e.Limit != "" && !e.Limit.Valid():
		return foreign(p, "limit", string(e.Limit))
	case !e.Denial.Valid():
		return foreign(p, "denial", string(e.Denial))
	case e.Signal != "":
		return firstErr(name(p, "signal", e.Signal), e.Sandbox.check(p))
	}
	return e.Sandbox.check(p)
}

// The names of gaps are package sandbox's and grow with what is found: a reader
// knows only that they are names.
func (c Confinement) check(p Payload) error {
	switch {
	case !c.Mode.Valid():
		return foreign(p, "sandbox mode", string(c.Mode))
	case !c.Network.Valid():
		return foreign(p, "sandbox network", string(c.Network))
	case !c.Tier.Valid():
		return foreign(p, "sandbox tier", string(c.Tier))
	case !c.Enforcement.Valid():
		return foreign(p, "sandbox enforcement", string(c.Enforcement))
	}
	for _, g := range c.Gaps {
		if err := name(p, "gap", string(g)); err != nil {
			return err
		}
	}
	return nil
}

func (p *ApprovalAsked) check() error {
	if !p.Mode.Valid() {
		return foreign(p, "mode", string(p.Mode))
	}
	return firstErr(name(p, "id", p.ID), need(p, "toolName", p.ToolName), callID(p, p.CallID), p.Basis.check(p))
}

func (p *ApprovalDecided) check() error {
	if !p.Outcome.Valid() {
		return foreign(p, "outcome", string(p.Outcome))
	}
	return firstErr(name(p, "id", p.ID), party(p.By))
}

func (p *Interrupt) check() error {
	return firstErr(name(p, "id", p.ID), turnStep(p, p.Turn, 1), party(p.By))
}

func (p *Cancel) check() error   { return firstErr(name(p, "id", p.ID), party(p.By)) }
func (p *Nudge) check() error    { return firstErr(name(p, "id", p.ID), party(p.By)) }
func (p *Expired) check() error  { return firstErr(name(p, "id", p.ID), party(p.By)) }
func (p *Budget) check() error   { return firstErr(name(p, "id", p.ID), party(p.By)) }
func (p *Archived) check() error { return firstErr(name(p, "id", p.ID), party(p.By)) }

func (p *Closed) check() error {
	return firstErr(name(p, "id", p.ID), need(p, "child", string(p.Child)), party(p.By))
}

func (p *End) check() error {
	switch p.Outcome {
	case OutcomeCompleted, OutcomeDenials, OutcomeFailed, OutcomeRefused,
		OutcomeOutOfRoom, OutcomeInterrupted, OutcomeCancelled, OutcomeBudget:
	default:
		return foreign(p, "outcome", string(p.Outcome))
	}
	if !ascending(p.Cancelled) {
		return fmt.Errorf("%s: cancelled must ascend", p.Type())
	}
	return party(p.By)
}

// checkSource holds a knob event to SPEC 3.2: a source is delegation's and comes
// without a party.
func checkSource(p Payload, s Source, by *Party) error {
	switch s {
	case "":
		return party(by)
	case SourceDelegation:
		if by != nil {
			return fmt.Errorf("%s: a delegation's value carries no party", p.Type())
		}
		return nil
	}
	return foreign(p, "source", string(s))
}

func party(by *Party) error {
	if by == nil {
		return nil
	}
	switch by.Kind {
	case Person, Program, SessionParty, CoordinatorOwn:
	default:
		return fmt.Errorf("by carries unknown kind %q", by.Kind)
	}
	if by.ID == "" || len(by.ID) > MaxName {
		return fmt.Errorf("by: id must have 1 to %d bytes", MaxName)
	}
	return nil
}

func turnStep(p Payload, turn, step int) error {
	if turn < 1 || step < 1 {
		return fmt.Errorf("%s: turn %d and step %d count from 1", p.Type(), turn, step)
	}
	return nil
}

func callID(p Payload, c CallID) error {
	if _, _, _, ok := c.Parts(); !ok {
		return fmt.Errorf("%s: %s is not a call id", p.Type(), quote(string(c)))
	}
	return nil
}

// foreign is the one form of a value outside a closed vocabulary.
func foreign(p Payload, field, value string) error {
	return fmt.Errorf("%s carries unknown %s %s", p.Type(), field, quote(value))
}

func need(p Payload, field, value string) error {
	if value == "" {
		return fmt.Errorf("%s: %s is missing", p.Type(), field)
	}
	return nil
}

// name holds a short text to its bounds. It may be shown on a terminal, so it
// has no control characters, those of the second half of Latin-1 included.
func name(p Payload, field, value string) error {
	if value == "" || len(value) > MaxName || !printable(value) {
		return fmt.Errorf("%s: %s %s must have 1 to %d bytes without control characters",
			p.Type(), field, quote(value), MaxName)
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func ascending(s []Seq) bool {
	for i := 1; i < len(s); i++ {
		if s[i] <= s[i-1] {
			return false
		}
	}
	return true
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
