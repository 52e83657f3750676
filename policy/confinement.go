package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
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

// Of is the user of a session's tree: the same for every session of it, on every
// worker, from the root's id alone.
func (r UIDRange) Of(id session.ID) uint32 {
	sum := sha256.Sum256([]byte(id.Root()))
	return r.First + uint32(binary.BigEndian.Uint64(sum[:8])%uint64(r.Count)) //nolint:gosec // below Count
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

// User ids that are no tree's to have. Below minUID are the system's own users; the
// kernel shows files of users it cannot name as nobody's; the last is no user.
const (
	minUID    = 1000
	nobodyUID = 65534
	noUID     = math.MaxUint32
)

// The least that a limit may be, if there is one. Below it a call fails for a
// reason that has nothing to do with what it does, and whoever set it meant another
// unit.
const (
	minCPU       = time.Second // the kernel counts whole seconds
	minFileSize  = 1 << 20     // a file that one call of the write tool may hold
	minOpenFiles = 64          // a shell, its pipes and a compiler
	minOutput    = 64 << 10    // what a model is shown of each call
	minProcesses = 16          // threads count, and a tool written in Go has some
)

func (c Confinement) validate() error {
	switch {
	case !slices.Contains(session.Tiers(), c.Require):
		return fmt.Errorf("require %q is not one of %v", c.Require, session.Tiers())
	case !c.Network.ReadOnly.Valid() || !c.Network.WorkspaceWrite.Valid():
		return fmt.Errorf("network %q under read-only and %q under workspace-write: each is one of %v",
			c.Network.ReadOnly, c.Network.WorkspaceWrite, session.Networks())
	case c.FullAccessAs != AsTree && c.FullAccessAs != AsWorker:
		return fmt.Errorf("fullAccessAs %q is neither %q nor %q", c.FullAccessAs, AsTree, AsWorker)
	}
	return errors.Join(c.UIDs.validate(), c.Limits.validate())
}

func (r UIDRange) validate() error {
	first, end := uint64(r.First), uint64(r.First)+uint64(r.Count)
	switch {
	case r.Count == 0:
		return errors.New("uids: a count of 0 leaves no user for any tree")
	case first < minUID:
		return fmt.Errorf("uids: first %d is below %d, where the system's own users are", r.First, minUID)
	case first <= nobodyUID && nobodyUID < end:
		return fmt.Errorf("uids: %d users from %d on include %d, which is nobody", r.Count, r.First, nobodyUID)
	case end > noUID:
		return fmt.Errorf("uids: %d users from %d on go beyond %d, the last there is", r.Count, r.First, uint32(noUID-1))
	}
	return nil
}

func (l Limits) validate() error {
	if l.Time <= 0 {
		return fmt.Errorf("limits: time %v is not above 0: every call ends", time.Duration(l.Time))
	}
	for _, m := range []struct {
		name         string
		value, least int64
	}{
		{"fileSize", l.FileSize, minFileSize},
		{"openFiles", l.OpenFiles, minOpenFiles},
		{"output", l.Output, minOutput},
		{"processes", l.Processes, minProcesses},
	} {
		if m.value != 0 && m.value < m.least {
			return fmt.Errorf("limits: %s %d is neither 0, which is no limit, nor at least %d", m.name, m.value, m.least)
		}
	}
	if l.CPU != 0 && time.Duration(l.CPU) < minCPU {
		return fmt.Errorf("limits: cpu %v is neither 0, which is no limit, nor at least %v", time.Duration(l.CPU), minCPU)
	}
	return nil
}
