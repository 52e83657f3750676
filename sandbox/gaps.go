package sandbox

import "github.com/entail-fleet/entail/session"

// The gaps that a confined call can be left with. They name what it could do
// outside of its workspace, not what anybody has seen it do.
const (
	// GapMetadata: under workspace-write, mode, owner, times and extended attributes
	// of outside files of the same user can be changed.
	GapMetadata session.Gap = "metadata"
	// GapLinks: what was hard-linked into the workspace, or mounted in it,
	// beforehand is part of it.
	GapLinks session.Gap = "hard-links"
	// GapSignals: processes of the same user can be signaled, and abstract unix
	// sockets be reached by descriptors that were there.
	GapSignals session.Gap = "signals"
	// GapLocks: outside files that can be read can be locked.
	GapLocks session.Gap = "file-locks"
	// GapSharedMemory: System V shared memory that everybody may write is writable.
	GapSharedMemory session.Gap = "shared-memory"
	// GapProcesses: the argument lists of other processes can be read.
	GapProcesses session.Gap = "process-list"
	// GapPriority: the scheduling of other processes of the same user can be changed.
	GapPriority session.Gap = "priority"
	// GapNetwork: the network is the host's.
	GapNetwork session.Gap = "network"
)

// scopedABI is the first Landlock that fences signals.
const scopedABI = 6

// fence is what a host puts around one confined call, as far as its gaps depend
// on it.
type fence struct {
	mode    session.SandboxMode
	network session.Network
	tier    session.Tier
	root    bool // the call runs as root, with fewer capabilities than others of its
	alone   bool // as a user that only its tree has
	abi     int  // of Landlock
}

// gaps lists what the fence leaves open, from the most harmful.
func (f fence) gaps() []session.Gap {
	var out []session.Gap
	add := func(open bool, g session.Gap) {
		if open {
			out = append(out, g)
		}
	}
	writes := f.mode == session.WorkspaceWrite
	inside := f.tier == session.TierNamespaces
	add(writes && f.tier == session.TierLandlock, GapMetadata)
	add(f.abi < scopedABI && !inside, GapSignals)
	add(writes && !f.alone, GapLinks)
	add(!inside && !f.alone && !f.root, GapPriority)
	add(!inside, GapSharedMemory)
	add(!inside, GapProcesses)
	add(true, GapLocks)
	add(f.network == session.NetworkAllow, GapNetwork)
	return out
}

// enforcement says whether a mode's promise about files is kept: what is left of it
// otherwise stands among the gaps.
func (f fence) enforcement() session.Enforcement {
	if f.mode == session.WorkspaceWrite && f.tier == session.TierLandlock || f.abi < scopedABI && f.tier != session.TierNamespaces {
		return session.EnforcedPartly
	}
	return session.EnforcedFully
}

// confinement is what a result says of the fence.
func (f fence) confinement() session.Confinement {
	if f.mode == session.DangerFullAccess {
		return session.Confinement{Mode: f.mode, Network: session.NetworkAllow, Tier: session.TierNone, Enforcement: session.NotEnforced}
	}
	return session.Confinement{Mode: f.mode, Network: f.network, Tier: f.tier, Enforcement: f.enforcement(), Gaps: f.gaps()}
}
