package session

// SandboxMode is the first knob: what the kernel lets a call change (SPEC 2).
// The empty value means "never switched", which is not the same as any mode.
type SandboxMode string

// The sandbox modes, narrow to wide.
const (
	ReadOnly         SandboxMode = "read-only"
	WorkspaceWrite   SandboxMode = "workspace-write"
	DangerFullAccess SandboxMode = "danger-full-access"
)

// SandboxModes lists every mode from narrow to wide.
func SandboxModes() []SandboxMode {
	return []SandboxMode{ReadOnly, WorkspaceWrite, DangerFullAccess}
}

// rank orders modes from narrow (1) to wide; 0 is outside the vocabulary.
func (m SandboxMode) rank() int {
	switch m {
	case ReadOnly:
		return 1
	case WorkspaceWrite:
		return 2
	case DangerFullAccess:
		return 3
	}
	return 0
}

// Valid reports whether m is in the closed vocabulary.
func (m SandboxMode) Valid() bool { return m.rank() > 0 }

// Wider reports whether m is strictly wider than o. A value outside the
// vocabulary is wider than nothing, and nothing is wider than it.
func (m SandboxMode) Wider(o SandboxMode) bool {
	return m.Valid() && o.Valid() && m.rank() > o.rank()
}

// ApprovalPolicy is the second knob: whether a call may ask a person (SPEC 2).
type ApprovalPolicy string

// The approval policies.
const (
	Ask   ApprovalPolicy = "ask"
	Never ApprovalPolicy = "never"
)

// Valid reports whether p is in the closed vocabulary.
func (p ApprovalPolicy) Valid() bool { return p == Ask || p == Never }

// Preset is the third knob: the name of a bundle of the other two (SPEC 2.2).
type Preset string

// The names the log itself gives a meaning to. The table of bundles is the
// deployment's; these four cannot be missing from it.
const (
	PresetReadOnly       Preset = "read-only"
	PresetWorkspaceWrite Preset = "workspace-write"
	PresetAuto           Preset = "auto"
	PresetFullAccess     Preset = "danger-full-access"
	// PresetCustom is derived only: it is never written and never selected.
	PresetCustom Preset = "custom"
)

// Source marks where a policy event came from (SPEC 2.5). The empty value is a
// switch made in this session.
type Source string

// SourceDelegation marks a value seeded at delegation.
const SourceDelegation Source = "delegation"

// Outcome is how an approval question ended (SPEC 5.7).
type Outcome string

// The closed set of outcomes. Only AllowedOnce grants.
const (
	AllowedOnce Outcome = "allowed-once"
	Rejected    Outcome = "rejected"
	Cancelled   Outcome = "cancelled"
	Unavailable Outcome = "unavailable"
)

// Valid reports whether o is in the closed vocabulary.
func (o Outcome) Valid() bool {
	switch o {
	case AllowedOnce, Rejected, Cancelled, Unavailable:
		return true
	}
	return false
}

// Class says who may write an event (SPEC 3).
type Class string

// The classes, each the last token of a subject but for genesis, which is the
// one before it.
const (
	ClassGenesis Class = "genesis"
	ClassPolicy  Class = "policy"
	ClassInbox   Class = "inbox"
	ClassTurn    Class = "turn"
	ClassSeed    Class = "seed"
)

// Valid reports whether c is one of the five classes.
func (c Class) Valid() bool {
	switch c {
	case ClassGenesis, ClassPolicy, ClassInbox, ClassTurn, ClassSeed:
		return true
	}
	return false
}

// Verdict is what a decision says of a call (SPEC 5.2).
type Verdict string

// The verdicts.
const (
	Allow     Verdict = "allow"
	Deny      Verdict = "deny"
	AskPerson Verdict = "ask"
)

// Stage is the stage that decided (SPEC 5.2). A rule's stage is "rule:" and its
// name.
type Stage string

// The stages that have no name of their own.
const (
	StagePolicy   Stage = "policy"
	StageApproval Stage = "approval"
	StageReviewer Stage = "reviewer"
	StageFilter   Stage = "filter"
	StageDepth    Stage = "depth"
)

// Origin says how a session came to be (SPEC 1.1).
type Origin string

// The origins.
const (
	OriginUser     Origin = "user"
	OriginSubagent Origin = "subagent"
	OriginImport   Origin = "import"
)

// Surface says whether there is anybody to ask (SPEC 5.7).
type Surface string

// The surfaces.
const (
	SurfaceNone Surface = "none"
	SurfaceAny  Surface = "any"
)

// Mode is the kind of life a child has (SPEC 4.1).
type Mode string

// The modes of a delegation.
const (
	OneShot     Mode = "one-shot"
	Continuable Mode = "continuable"
)

// Kind says what a child starts from (SPEC 4.1).
type Kind string

// The kinds of a delegation.
const (
	Spawn Kind = "spawn"
	Fork  Kind = "fork"
)

// Capability is one of the three that a deployment may leave out (SPEC 2.6).
type Capability string

// The capabilities, in the order of their names.
const (
	CapabilityApprovals Capability = "approvals"
	CapabilityPresets   Capability = "presets"
	CapabilitySandbox   Capability = "sandbox"
)

// Valid reports whether c is in the closed vocabulary.
func (c Capability) Valid() bool {
	return c == CapabilityApprovals || c == CapabilityPresets || c == CapabilitySandbox
}

// Codes that stand in the log and that programs match on.
const (
	CodeToolNotStarted     = "TOOL_NOT_STARTED"
	CodeToolOutcomeUnknown = "TOOL_OUTCOME_UNKNOWN"
	CodeSandboxUnavailable = "SANDBOX_UNAVAILABLE"
	CodeSandboxDenied      = "FS_SANDBOX_DENIED"
	CodeAutoReviewDenied   = "AUTO_REVIEW_DENIED"
)

// ToolDelegate is the one tool whose allowing decision stands in a genesis and
// nowhere else (SPEC 3.1).
const ToolDelegate = "delegate"
