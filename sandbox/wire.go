//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/json"
	"time"

	"github.com/entail-fleet/entail/session"
)

// The names under which the binary is started again. A confined command may use
// them too: it gains nothing, since what it starts stays as confined as it is.
const (
	launcherName = "entail-sandbox-launcher"
	performName  = "entail-sandbox-perform"
)

// The descriptors a launcher is born with.
const (
	controlFD = 3 // the socket to the worker
	rootFD    = 4 // the workspace root
	tempFD    = 5 // the private temp directory
)

// order is the first message on the control socket: everything the launcher
// has to know. Nothing of it stands in an argument list or an environment.
type order struct {
	Mode     session.SandboxMode
	Root     string   // canonical; must be the directory behind rootFD
	Temp     string   // canonical; must be the directory behind tempFD
	Hidden   []string // canonical, none below another
	Mounts   bool     // the launcher has a mount namespace of its own
	MaxABI   int      // see Config.maxABI
	Env      []string
	Timeout  time.Duration
	Deadline time.Duration // on the boot clock; zero means none
	Cap      int
	Op       Op
}

// confined says whether the order asks for a fence.
func (o *order) confined() bool { return o.Mode != session.DangerFullAccess }

// renewal is every later message to the launcher. The end of the stream means
// that the worker is gone or wants the call ended.
type renewal struct{ Deadline time.Duration }

// The stages at which a launcher gives up. Until stageExec nothing has run.
const (
	stageConfine = "confine"
	stageLease   = "lease"
	stageExec    = "exec"
)

// notice is a message from the launcher: exactly one field is set.
type notice struct {
	Failure *failure `json:",omitempty"`
	Ready   bool     `json:",omitempty"` // the command is about to be started
	Ending  *ending  `json:",omitempty"`
}

// failure says why nothing was started.
type failure struct {
	Stage   string
	Errno   int
	Message string
}

// The causes of an ending that is not the command's own.
const (
	causeTimeout = "timeout"
	causeLease   = "lease"
	causeStopped = "stopped"
)

// ending is the launcher's last message: the command and all it started are
// gone.
type ending struct {
	Code   int
	Signal int
	Swept  int
	Cause  string // empty when the command ended by itself
}

// performance is what the second stage writes to its standard output.
type performance struct {
	Output    string
	Code      string
	Denied    bool
	Truncated bool
}

// request is what the second stage reads from its standard input.
type request struct {
	Mode   session.SandboxMode
	Root   string
	Temp   string
	Hidden []string
	Cap    int
	Op     Op
}

func (o *order) request() ([]byte, error) {
	return json.Marshal(request{Mode: o.Mode, Root: o.Root, Temp: o.Temp, Hidden: o.Hidden, Cap: o.Cap, Op: o.Op})
}
