//go:build linux && (amd64 || arm64)

package attack

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Target is what attempts aim at. The directories hold one directory for each
// attempt.
type Target struct {
	Outside   string // a directory outside of the workspace
	Work      string // the workspace
	Temp      string // the call's private temp directory
	Data      string // the worker's data directory, which is hidden
	OtherWork string // another tree's workspace
	OtherTemp string // another tree's temp directory

	Worker   int // the process that has the call run
	Launcher int // the parent of the call's first process; set by Run
	Victim   int // a process outside of the call

	Witness  string // what stands in the worker's and the victim's environment
	Address  uint64 // of it in the victim's memory
	TCP, UDP string // servers of the victim
	Stream   string // its unix sockets
	Datagram string
	Rights   string // hands out a descriptor of its attempt's file
	Abstract string
	Segment  int // key of its shared memory

	Broker string   // host and port of a broker
	Groups []string // what Run tries; empty for all
	Name   string   // the attempt's; set by Run
}

// The files that attempts find in their directories, each with Content unless it says
// otherwise.
const (
	File   = "file"   // in Work and Outside
	Hard   = "hard"   // HardWrite's: one file with a name in Work and one in Outside
	ToFile = "tofile" // a link in Work to Outside's file
	ToDir  = "todir"  // a link in Work to Outside
	Bound  = "bound"  // a directory in Work and Outside, with a file there
	Empty  = "empty"  // an empty directory in Outside
	SetUID = "setuid" // a copy of id(1) in Work that runs as root
	Key    = "key"    // in Data: the worker's credentials
	Token  = "token"  // in Data, OtherWork and OtherTemp
	Store  = "store"  // a directory in Data with a file

	Content = "what was there before\n"
)

// The attempts that the yard is made for in particular.
const (
	RemoveDirectory = "fs/remove-directory"          // finds Empty
	HardWrite       = "fs/write-old-hard-link"       // finds Hard
	LinkWrite       = "fs/write-by-symlink"          // finds ToFile
	LinkedDirWrite  = "fs/write-by-linked-directory" // finds ToDir
	BoundWrite      = "fs/write-where-mounted"       // finds Outside's Bound mounted on Work's
	Unmount         = "ns/unmount-outside"           // finds something mounted on Outside's Bound
	HeldWrite       = "fs/write-what-is-held"        // the victim holds Outside's file open as VictimFD
	RightsWrite     = "net/unix-take-and-write"      // the victim's socket hands out Outside's file
	RunAsRoot       = "proc/run-as-root"             // finds SetUID
)

// Places says where an attempt has directories.
func Places(name string) (outside, work, data, other bool) {
	group, _, _ := strings.Cut(name, "/")
	in := func(groups ...string) bool { return slices.Contains(groups, group) }
	return in("fs", "fd", "meta", "ns", "kern", "net", "read", "arch"), in("fs", "inside", "dev", "ns", "data", "tree", "proc", "net", "arch"),
		in("worker", "launcher", "data", "broker"), in("tree")
}

// VictimFD is the descriptor that the victim holds open.
const VictimFD = 100

// Leaks are the attempts at descriptors that the worker leaks, by number, with the
// flags that each was opened with: Outside's file, or Outside itself.
func Leaks() map[string]Leak {
	return map[string]Leak{
		"fd/open-below-directory": {FD: 201, Flags: unix.O_RDONLY | unix.O_DIRECTORY, Dir: true},
		"fd/reopen-for-writing":   {FD: 202, Flags: unix.O_RDONLY},
		"fd/write":                {FD: 203, Flags: unix.O_RDWR},
		"fd/truncate":             {FD: 204, Flags: unix.O_RDWR},
		"fd/chmod":                {FD: 205, Flags: unix.O_RDONLY},
	}
}

// Leak is a descriptor that a call is not to inherit.
type Leak struct {
	FD, Flags int
	Dir       bool
}

// Aims says whether Run makes an attempt.
func (t *Target) Aims(name string) bool {
	group, _, _ := strings.Cut(name, "/")
	return len(t.Groups) == 0 || slices.Contains(t.Groups, group)
}

func (t *Target) out(name string) string    { return filepath.Join(t.Outside, t.Name, name) }
func (t *Target) in(name string) string     { return filepath.Join(t.Work, t.Name, name) }
func (t *Target) hidden(name string) string { return filepath.Join(t.Data, t.Name, name) }

// An Attempt is one thing to try.
type Attempt struct {
	Name string
	try  func(*Target) error
}

// Attempts lists all, by group.
func Attempts() []Attempt {
	return slices.Concat(
		fileAttempts(), descriptorAttempts(), metadataAttempts(), insideAttempts(), deviceAttempts(),
		namespaceAttempts(), processAttempts(), ipcAttempts(), socketAttempts(), kernelAttempts(),
		readAttempts(), workerAttempts(), launcherAttempts(), dataAttempts(), brokerAttempts(), archAttempts(),
	)
}

// Outcomes that no errno names.
var (
	errNothing = errors.New("NOTHING") // it could look, and what it wanted is not there
	errRefused = errors.New("REFUSED") // a server said no
)

// An Outcome says how an attempt ended.
type Outcome struct {
	Name string
	// Refusal is empty if the attempt got through. Else it is the name of the errno,
	// of the signal that ended the process, or a word of this package's.
	Refusal string
	Text    string // the whole error
}

// Verdict is allowed, denied or absent.
func (o Outcome) Verdict() string { return Verdict(o.Refusal) }

// Verdict says what a refusal means: allowed, denied, or absent where there is no
// such thing in this kernel or in this confinement.
func Verdict(refusal string) string {
	switch refusal {
	case "":
		return "allowed"
	case "ENOENT", "ESRCH", "ENOSYS", "EAFNOSUPPORT", "NOTHING":
		return "absent"
	}
	return "denied"
}

func outcome(name string, err error) Outcome {
	o := Outcome{Name: name}
	if err == nil {
		return o
	}
	o.Text = err.Error()
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		if o.Refusal = unix.ErrnoName(errno); o.Refusal == "" {
			o.Refusal = "ERROR" // there is no such number
		}
		return o
	}
	for _, word := range []error{errNothing, errRefused} {
		if errors.Is(err, word) {
			o.Refusal = word.Error()
			return o
		}
	}
	o.Refusal = "ERROR"
	return o
}

// try makes one attempt.
func try(t *Target) Outcome {
	for _, a := range Attempts() {
		if a.Name == t.Name {
			return outcome(t.Name, a.try(t))
		}
	}
	return outcome(t.Name, fmt.Errorf("there is no attempt %q", t.Name))
}
