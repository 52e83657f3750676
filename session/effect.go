package session

import "slices"

// Effect is what is known of a call that a sandbox ran, fact by fact. The model is
// shown a text; programs read this.
type Effect struct {
	// ExitCode is the command's, 128 and the signal's number if one ended it.
	ExitCode int `json:"exitCode"`
	// Signal names the signal that ended the command, as SIGKILL.
	Signal string `json:"signal,omitempty"`
	// TimedOut says that the call's own time was up.
	TimedOut bool `json:"timedOut,omitempty"`
	// Truncated says that the text shown is not all there was.
	Truncated bool `json:"truncated,omitempty"`
	// Limit names the limit that ended the call, if one did.
	Limit Limit `json:"limit,omitempty"`
	// Denial says whether the fence refused something.
	Denial Denial `json:"denial"`
	// Sandbox is what held the call.
	Sandbox Confinement `json:"sandbox"`
}

// Confinement is what held one call.
type Confinement struct {
	Mode        SandboxMode `json:"mode"`
	Network     Network     `json:"network"`
	Tier        Tier        `json:"tier"`
	Enforcement Enforcement `json:"enforcement"`
	// Gaps names what this host did not prevent, in order.
	Gaps []Gap `json:"gaps,omitempty"`
}

// Tier is the kind of fence that a host puts around a call.
type Tier string

// The tiers, from the strongest. TierNone is danger-full-access's alone.
const (
	TierNamespaces Tier = "namespaces" // mounts, processes and IPC of its own
	TierUID        Tier = "uid"        // a user of the tree's own, without namespaces
	TierLandlock   Tier = "landlock"   // Landlock and seccomp alone
	TierNone       Tier = "none"
)

// Tiers lists those that confine, from the strongest.
func Tiers() []Tier { return []Tier{TierNamespaces, TierUID, TierLandlock} }

// rank orders tiers from none (1) to the strongest; 0 is outside the vocabulary.
func (t Tier) rank() int {
	switch t {
	case TierNone:
		return 1
	case TierLandlock:
		return 2
	case TierUID:
		return 3
	case TierNamespaces:
		return 4
	}
	return 0
}

// Valid reports whether t is in the closed vocabulary.
func (t Tier) Valid() bool { return t.rank() > 0 }

// Weaker reports whether t is strictly weaker than o. A value outside the
// vocabulary is weaker than every other.
func (t Tier) Weaker(o Tier) bool { return t.rank() < o.rank() }

// Enforcement says how much of a mode's promise a host keeps.
type Enforcement string

// The degrees of enforcement. Nothing is enforced under danger-full-access.
const (
	EnforcedFully  Enforcement = "full"
	EnforcedPartly Enforcement = "partial"
	NotEnforced    Enforcement = "none"
)

// Valid reports whether e is in the closed vocabulary.
func (e Enforcement) Valid() bool {
	return e == EnforcedFully || e == EnforcedPartly || e == NotEnforced
}

// Gap names something that a call could do outside of its workspace. Package
// sandbox says what each means; the vocabulary grows with what is found.
type Gap string

// Network is what a call may reach over the network. It is all or nothing: no
// value tells one address from another.
type Network string

// The values of the network knob, narrow to wide. Loopback is a network of the
// call's own, which needs namespaces.
const (
	NetworkDeny     Network = "deny"
	NetworkLoopback Network = "loopback"
	NetworkAllow    Network = "allow"
)

// Networks lists every value from narrow to wide.
func Networks() []Network { return []Network{NetworkDeny, NetworkLoopback, NetworkAllow} }

// rank orders networks from narrow (1) to wide (3); 0 is outside the vocabulary.
func (n Network) rank() int { return slices.Index(Networks(), n) + 1 }

// Valid reports whether n is in the closed vocabulary.
func (n Network) Valid() bool { return n.rank() > 0 }

// Wider reports whether n is strictly wider than o. A value outside the vocabulary
// is wider than nothing and narrower than nothing.
func (n Network) Wider(o Network) bool { return n.Valid() && o.Valid() && n.rank() > o.rank() }

// Limit names what a call may use up.
type Limit string

// The limits. LimitLease is the end of the driver's lease (SPEC 7.8).
const (
	LimitTime      Limit = "time"
	LimitLease     Limit = "lease"
	LimitCPU       Limit = "cpu"
	LimitFileSize  Limit = "file-size"
	LimitOpenFiles Limit = "open-files"
	LimitOutput    Limit = "output"
	LimitProcesses Limit = "processes"
)

// Valid reports whether l is in the closed vocabulary. No limit at all is not.
func (l Limit) Valid() bool {
	switch l {
	case LimitTime, LimitLease, LimitCPU, LimitFileSize, LimitOpenFiles, LimitOutput, LimitProcesses:
		return true
	}
	return false
}

// Denial says whether the fence refused something that a call wanted.
type Denial string

// The values of a denial. File operations know for certain. Of a command it is
// suspected where it failed and its standard error speaks of one of the fence's
// errors.
const (
	DenialNone      Denial = "none"
	DenialCertain   Denial = "certain"
	DenialSuspected Denial = "suspected"
)

// Valid reports whether d is in the closed vocabulary.
func (d Denial) Valid() bool {
	return d == DenialNone || d == DenialCertain || d == DenialSuspected
}
