package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/entail-fleet/entail/internal/wire"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// The codes a Result can carry.
const (
	// CodeDenied says that the fence refused the effect.
	CodeDenied = wire.CodeDenied
	// CodeNotRegular says that the path is no ordinary file: a directory, a
	// FIFO, a socket, a device, or a file of procfs or sysfs.
	CodeNotRegular = wire.CodeNotRegular
	// CodeUnavailable says that the host could not confine the call, which was
	// therefore not run.
	CodeUnavailable = wire.CodeUnavailable
	// CodeNotFound says that a path names nothing.
	CodeNotFound = wire.CodeNotFound
	// CodeNoMatch says that an edit's old text does not occur in the file.
	CodeNoMatch = wire.CodeNoMatch
	// CodeAmbiguous says that an edit's old text occurs more than once.
	CodeAmbiguous = wire.CodeAmbiguous
	// CodeInvalid says that an argument makes no sense: an empty path, a
	// pattern that does not parse.
	CodeInvalid = wire.CodeInvalid
	// CodeFailed says that the operating system refused for a reason that has
	// nothing to do with the fence: a full disk, an unreadable directory.
	CodeFailed = wire.CodeFailed
)

var (
	// ErrUnavailable is wrapped by New's error when this host cannot confine
	// anything. The Runner returned with it still runs danger-full-access calls
	// and refuses all others with CodeUnavailable.
	ErrUnavailable = errors.New("this host cannot confine a call")
	// ErrNotPermitted is returned by Run for a permit that permits nothing.
	// Nothing has run.
	ErrNotPermitted = errors.New("the call holds no permit")
	// ErrNotStarted is wrapped by Run's error when it is certain that the call
	// has had no effect.
	ErrNotStarted = errors.New("the call was not started")
	// ErrLeaseOver is wrapped by Run's error when the lease's deadline passed.
	// With ErrNotStarted too, it passed before the start.
	ErrLeaseOver = errors.New("the lease is over")
	// ErrLost is wrapped by Run's error when the launcher ended without a
	// report: what the call did is unknown.
	ErrLost = errors.New("the launcher ended without a report")
	// ErrElsewhere is wrapped by the errors of Mark and CheckMark: as far as
	// anybody can tell, the directory is not the place that is meant.
	ErrElsewhere = errors.New("the workspace is not reached from here")
)

// Config configures a Runner. The zero value is useful.
type Config struct {
	// Hidden lists absolute paths, existing or not, that no confined call may
	// read or write: the data directory, the token file. Default none.
	Hidden []string
	// UIDs are the users that trees are given where this process can switch users.
	// Every worker of a deployment has the same. Default policy.DefaultConfinement's.
	UIDs policy.UIDRange
	// Env is what a shell call finds in its environment beyond the built-in
	// list, as KEY=VALUE; a key of that list is replaced. Default none.
	Env []string
	// OutputCap is how many bytes of each output stream are shown, half of them
	// from its head and half from its tail. Default 60 KiB, so that both streams
	// of a call fit into one record of a log however their bytes are escaped.
	OutputCap int
	// FilesInProcess has file operations done by this process itself, held to
	// their bounds by os.Root alone. They then see this process's view of the
	// file system, and run as its user. Default false: a confined process.
	FilesInProcess bool

	// Best is the strongest tier to try. Default namespaces, which is the strongest.
	Best session.Tier
	// Warm is how many launchers of each kind wait for a call, once there was a call
	// of that kind; with namespaces and with a network of its own are kinds. They end
	// with the Runner or with this process. Default 0: each is started for its call.
	Warm int

	// launcher, in tests, is started in place of the embedded launcher.
	launcher program
	// maxABI, in tests, is the highest Landlock ABI to believe in; -1 none.
	maxABI int
	// grace is how long a launcher may take to end a call whose time is up. Set in
	// tests alone.
	grace time.Duration
	// maxOutput and maxOutputs are how many bytes are kept of one output that is
	// shown in part, and of all those of a Workspace. Set in tests alone.
	maxOutput, maxOutputs int64
}

// program is what children of this process can be started with.
type program struct {
	path string   // as this process sees it
	file *os.File // if it has no other name than that
}

const (
	// sweepGrace bounds the wait for a launcher or a helper that was to end its call.
	// Nothing but a process that the kernel cannot kill, or a launcher that was stopped
	// from outside, makes it take long.
	sweepGrace       = 15 * time.Second
	defaultOutputCap = 60 << 10
	// An output up to this size can still be searched by the grep tool.
	defaultMaxOutput  = 8 << 20
	defaultMaxOutputs = 64 << 20
)

func (c Config) withDefaults() Config {
	if c.UIDs == (policy.UIDRange{}) {
		c.UIDs = policy.DefaultConfinement().UIDs
	}
	if c.Best == "" {
		c.Best = session.TierNamespaces
	}
	if c.grace <= 0 {
		c.grace = sweepGrace
	}
	if c.OutputCap <= 0 {
		c.OutputCap = defaultOutputCap
	}
	if c.maxOutput <= 0 {
		c.maxOutput = defaultMaxOutput
	}
	if c.maxOutputs <= 0 {
		c.maxOutputs = defaultMaxOutputs
	}
	return c
}

// Lease bounds how long a call may run by what its driver still holds. The
// deadline travels to the launcher, which ends the call when it passes even if
// this process is stopped (SPEC 7.8).
type Lease interface {
	// Deadline is the moment the lease ends, on the clock of BootTime.
	Deadline() time.Duration
	// Renewed delivers a value after Deadline has moved.
	Renewed() <-chan struct{}
}

// Op is what a permitted call does. Exactly one field is set.
type Op = wire.Op

// What a call can do.
type (
	// Shell runs a command line.
	Shell = wire.Shell
	// Read returns lines of a text file.
	Read = wire.Read
	// Write replaces or creates a file.
	Write = wire.Write
	// Edit replaces text in a file.
	Edit = wire.Edit
	// List names the entries of a directory.
	List = wire.List
	// Glob names the files that match a pattern.
	Glob = wire.Glob
	// Grep shows the lines that match a pattern.
	Grep = wire.Grep
)

// Streams are what a command that is run by [Workspace.Exec] reads and writes. An
// *os.File is handed over as it is, anything else is copied, and nil is nothing: the
// null device. What is handed over is the command's, whatever its mode.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// fileTimeout is how long a file operation has, whatever the deployment's limits are.
const fileTimeout = time.Minute

// validate checks that exactly one field is set, and that its text is text: what is
// not UTF-8 would not arrive as it is.
func validate(o Op) error {
	n := 0
	for _, set := range []bool{
		o.Shell != nil, o.Read != nil, o.Write != nil, o.Edit != nil,
		o.List != nil, o.Glob != nil, o.Grep != nil,
	} {
		if set {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("an operation sets exactly one field, this one %d", n)
	}
	for _, text := range texts(o) {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%.100q is not UTF-8", text)
		}
	}
	if o.Shell != nil {
		return validateShell(o.Shell)
	}
	return nil
}

// validateShell checks what no program can be started with.
func validateShell(s *Shell) error {
	switch {
	case s.Argv == nil:
		return nil
	case s.Command != "":
		return errors.New("a shell call has a command line or arguments, not both")
	case len(s.Argv) == 0 || s.Argv[0] == "":
		return errors.New("the arguments name no program")
	case slices.ContainsFunc(s.Argv, func(a string) bool { return strings.Contains(a, "\x00") }):
		return errors.New("an argument holds a NUL byte, which no argument of a program can")
	}
	return nil
}

// texts lists what an operation that sets one field is told.
func texts(o Op) []string {
	switch {
	case o.Shell != nil:
		return append([]string{o.Shell.Command}, o.Shell.Argv...)
	case o.Read != nil:
		return []string{o.Read.Path}
	case o.Write != nil:
		return []string{o.Write.Path, o.Write.Content}
	case o.Edit != nil:
		return []string{o.Edit.Path, o.Edit.Old, o.Edit.New}
	case o.List != nil:
		return []string{o.List.Path}
	case o.Glob != nil:
		return []string{o.Glob.Pattern}
	}
	return []string{o.Grep.Path, o.Grep.Pattern}
}

func timeout(o Op, l policy.Limits) time.Duration {
	switch {
	case o.Shell == nil:
		return fileTimeout
	case o.Shell.Timeout <= 0:
		return time.Duration(l.Time)
	}
	return o.Shell.Timeout
}

// Result is what came of a call.
type Result struct {
	// Output is what the model is shown: for a shell call its standard output,
	// then its standard error.
	Output string
	// ExitCode is the shell call's, 128 and the signal's number if one ended it.
	ExitCode int
	// Signal names the signal that ended the shell call, if one did.
	Signal string
	// TimedOut says that the call was ended because its time was up.
	TimedOut bool
	// Truncated says that Output is not all there was.
	Truncated bool
	// Limit names the limit that ended the call, if one did, as far as can be told.
	Limit session.Limit
	// Denial says whether the fence refused an effect.
	Denial session.Denial
	// Sandbox is what held the call. It is the zero value for one that did not run.
	Sandbox session.Confinement
	// Code names what went wrong with a file operation or with confinement.
	Code string
	// Failed says that the call did not do what it was asked to.
	Failed bool
	// Swept counts the processes the call left behind, which were killed.
	Swept int
}

// Denied reports whether the fence refused an effect, for certain or as far as can
// be told.
func (r Result) Denied() bool {
	return r.Denial == session.DenialCertain || r.Denial == session.DenialSuspected
}

// Marker returns the line that ends the output of a denied call.
func Marker(mode session.SandboxMode) string {
	return fmt.Sprintf("[sandbox: file access denied under %s mode]", mode)
}

// noWorkaround follows the marker (SPEC 5.5).
const noWorkaround = "This refusal is policy. Do not try to reach the same effect by another tool, path or command; " +
	"go on without it or report that it was refused."

// Hint returns the line that tells a model how to ask for a wider mode, or ""
// when none is wider. The caller appends it only where the call may ask.
func Hint(mode session.SandboxMode) string {
	var wider []string
	for _, m := range session.SandboxModes() {
		if m.Wider(mode) {
			wider = append(wider, fmt.Sprintf("%q", m))
		}
	}
	if len(wider) == 0 {
		return ""
	}
	return fmt.Sprintf("[sandbox: escalation available — retry this exact operation once with sandbox_permissions "+
		"set to %s and a justification]", strings.Join(wider, " or "))
}

// note adds a line to what is shown.
func (r Result) note(line string) Result {
	if r.Output != "" && !strings.HasSuffix(r.Output, "\n") {
		r.Output += "\n"
	}
	r.Output += line
	return r
}

// denied makes r the result of a refusal under mode.
func (r Result) denied(how session.Denial, mode session.SandboxMode) Result {
	r.Denial, r.Failed, r.Code = how, true, CodeDenied
	return r.note(Marker(mode) + "\n" + noWorkaround)
}

// unavailable is the result of a call that could not be confined.
func unavailable(why string) Result {
	return Result{Failed: true, Code: CodeUnavailable, Denial: session.DenialNone, Output: "the call was not run: " + why}
}
