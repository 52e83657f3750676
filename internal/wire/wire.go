// Package wire is what a worker and the launchers that it starts say to each other.
//
// A launcher is born with a socket on [ControlFD]. The worker sends one byte, with
// the descriptors of the workspace and of its temp directory and, if the command has a
// cgroup, two of that, then one [Order] and then [Renewal]s; the launcher answers with [Notice]s, all as JSON. A launcher can
// so be born before it is known what for. Nothing of
// it stands in an argument list or an environment. Both sides are built from one
// source tree, so the messages have no version.
package wire

import "time"

// The names by which the launcher's binary is started. A confined command may use
// them too: it gains nothing, since what it starts stays as confined as it is.
const (
	LauncherName = "entail-sandbox-launcher"
	HelperName   = "entail-sandbox-helper"
)

// ControlFD is the socket to the worker, the one descriptor that a launcher is born
// with beside the standard three.
const ControlFD = 3

// TempPrefix begins the name of every private temp directory.
const TempPrefix = "entail-call-"

// LauncherEnv is all the environment that launchers get: they are short-lived and
// single-minded, so the collector stays off until there is much to collect, and two
// processors are enough. One would be too few: it is held by a thread that waits in
// the kernel.
func LauncherEnv() []string { return []string{"GOGC=off", "GOMEMLIMIT=64MiB", "GOMAXPROCS=2"} }

// HelperEnv is all the environment of a helper, which lives long and keeps little.
func HelperEnv() []string { return []string{"GOGC=50", "GOMEMLIMIT=48MiB", "GOMAXPROCS=2"} }

// Bounds say what a call may do. The zero value is the narrowest.
type Bounds struct {
	MayWrite   bool     // in the workspace and its temp directory
	Unconfined bool     // there is no fence
	Root       string   // canonical; must be the directory of the descriptor
	Temp       string   // canonical; must be the directory of the descriptor
	Hidden     []string // canonical, none below another
}

// Order is the first message on the control socket: everything the launcher has
// to know. The zero value of each field is the narrowest, but for User and Limits.
type Order struct {
	Request

	Serve bool // become a helper and do file operations; Op is not looked at
	// Others are other trees' workspaces, which lie outside of this one: hidden by the
	// rules alone, since there can be many.
	Others []string

	User       *User // as whom the call runs; nil as whom the launcher does
	Namespaces bool  // the launcher has mounts, processes and IPC of its own
	Loopback   bool  // and a network of its own, whose loopback interface is wanted
	Sockets    bool  // IPv4 and IPv6 sockets may be made
	MaxABI     int   // the highest Landlock ABI to believe in, when a test sets it; -1 none
	Env        []string
	Limits     Limits
	Timeout    time.Duration
	Deadline   time.Duration // on the boot clock; zero means none
}

// Limits are what each process of a command is held to. Zero is no limit.
type Limits struct {
	CPU       uint64 // seconds
	FileSize  uint64 // bytes of a file that is written
	OpenFiles uint64
}

// User is a user and the one group that it is in.
type User struct{ UID, GID int }

// Request is what is asked for, and within what bounds.
type Request struct {
	Bounds

	Cap int // bytes that are shown of what was asked for
	Op  Op
}

// Renewal is every later message to the launcher. The end of the stream means
// that the worker is gone or wants the call ended.
type Renewal struct {
	Deadline time.Duration
	Job      uint64 // a helper's, which the renewal is for
}

// The stages at which a launcher gives up. Until StageExec nothing has run.
const (
	StageConfine = "confine"
	StageLease   = "lease"
	StageExec    = "exec"
)

// Notice is a message from the launcher: exactly one field is set.
type Notice struct {
	Failure *Failure `json:",omitempty"`
	Ready   bool     `json:",omitempty"` // the command is about to be started
	Ending  *Ending  `json:",omitempty"`
}

// Failure says why nothing was started.
type Failure struct {
	Stage   string
	Errno   int
	Message string
}

// The causes of an ending that is not the command's own.
const (
	CauseTimeout   = "timeout"
	CauseLease     = "lease"
	CauseStopped   = "stopped"
	CauseProcesses = "processes"
)

// Ending is the launcher's last message: the command and all it started are
// gone.
type Ending struct {
	Code   int
	Signal int
	Swept  int
	CPU    time.Duration // what the command used, and what it started and waited for
	Cause  string        // empty when the command ended by itself
}

// Performance is what a file operation came to.
type Performance struct {
	Output    string
	Code      string
	Denied    bool
	Truncated bool
}

// The codes a call's result can carry. Package sandbox says what each means. They
// are written to session logs, so they are append-only.
const (
	CodeDenied      = "FS_SANDBOX_DENIED"
	CodeNotRegular  = "FS_NOT_REGULAR_FILE"
	CodeUnavailable = "SANDBOX_UNAVAILABLE"
	CodeNotFound    = "FS_NOT_FOUND"
	CodeNoMatch     = "FS_NO_MATCH"
	CodeAmbiguous   = "FS_AMBIGUOUS_MATCH"
	CodeInvalid     = "FS_INVALID_ARGUMENT"
	CodeFailed      = "FS_FAILED"
)
