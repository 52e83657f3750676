package policy

import (
	"time"

	"github.com/entail-fleet/entail/session"
)

// Confinement is what the deployment has calls confined by. It is live: a permit
// carries what was in force when the call was decided.
type Confinement struct {
	// Require is the weakest tier that a confined call may run under. A worker whose
	// host has less refuses it.
	Require session.Tier `json:"require"`
	// Network says what confined calls may reach, by mode. danger-full-access
	// reaches everything.
	Network Networks `json:"network"`
	// UIDs are the users that trees are given where a worker can switch users.
	// Workers read it when they start.
	UIDs UIDRange `json:"uids"`
	// FullAccessAs says as whom a danger-full-access call runs where a worker can
	// switch users: as its tree or as the worker.
	FullAccessAs FullAccessUser `json:"fullAccessAs"`
	// Limits bound each call.
	Limits Limits `json:"limits"`
}

// Networks is the network knob by mode.
type Networks struct {
	ReadOnly       session.Network `json:"read-only"`
	WorkspaceWrite session.Network `json:"workspace-write"`
}

// Of returns what a mode's calls may reach. What is no mode reaches nothing.
func (n Networks) Of(m session.SandboxMode) session.Network {
	switch m {
	case session.ReadOnly:
		return n.ReadOnly
	case session.WorkspaceWrite:
		return n.WorkspaceWrite
	case session.DangerFullAccess:
		return session.NetworkAllow
	}
	return session.NetworkDeny
}

// UIDRange is a range of user ids that nobody else has on any worker.
type UIDRange struct {
	First uint32 `json:"first"`
	Count uint32 `json:"count"`
}

// FullAccessUser names a user for danger-full-access calls.
type FullAccessUser string

// The users for danger-full-access calls.
const (
	AsTree   FullAccessUser = "tree"
	AsWorker FullAccessUser = "worker"
)

// Limits bound a call. Zero means no limit, but for Time.
type Limits struct {
	Time      Duration `json:"time"`      // of a shell call that names none
	CPU       Duration `json:"cpu"`       // of one process
	FileSize  int64    `json:"fileSize"`  // bytes of a file that is written
	OpenFiles int64    `json:"openFiles"` // descriptors of one process
	Output    int64    `json:"output"`    // bytes of both streams together
	Processes int64    `json:"processes"` // of the call, where the host can count them
}

// DefaultConfinement is what a deployment starts with.
func DefaultConfinement() Confinement {
	return Confinement{
		Require: session.TierLandlock,
		Network: Networks{ReadOnly: session.NetworkDeny, WorkspaceWrite: session.NetworkAllow},
		// Between the ranges that systemd knows for containers and for foreign images.
		UIDs:         UIDRange{First: 1_900_000_000, Count: 200_000_000},
		FullAccessAs: AsTree,
		Limits: Limits{
			Time: Duration(2 * time.Minute), CPU: Duration(10 * time.Minute),
			FileSize: 1 << 30, OpenFiles: 1024, Output: 256 << 20, Processes: 512,
		},
	}
}
