//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/session"
)

// target is what an attack aims at. Its strings are the attacker's arguments.
type target struct {
	outside string // a file outside of the workspace
	victim  int    // a process outside of the call
	tcp     string
	socket  string // a listening unix socket outside
}

func (g target) args() []string {
	return []string{g.outside, strconv.Itoa(g.victim), g.tcp, g.socket}
}

// attack runs one attempt and reports by its exit code whether it got through.
func attack(args []string) int {
	victim, err := strconv.Atoi(args[2])
	if err != nil {
		return complain(err)
	}
	all := attempts()
	maps.Copy(all, metadata())
	maps.Copy(all, truncations())
	try := all[args[0]]
	if try == nil {
		return complain(fmt.Errorf("no attempt %q", args[0]))
	}
	if err := try(target{outside: args[1], victim: victim, tcp: args[3], socket: args[4]}); err != nil {
		return complain(err)
	}
	return 0
}

// attempts are what no confined call may get through with, in either mode.
func attempts() map[string]func(target) error {
	return map[string]func(target) error{
		"write outside":           func(g target) error { return os.WriteFile(g.outside, []byte("x"), 0o600) },
		"truncate by open":        openTruncated,
		"truncate outside":        func(g target) error { return unix.Truncate(g.outside, 0) },
		"create outside":          func(g target) error { return os.WriteFile(g.outside+".new", nil, 0o600) },
		"mkdir outside":           func(g target) error { return os.Mkdir(g.outside+".dir", 0o700) },
		"remove outside":          func(g target) error { return os.Remove(g.outside) },
		"write by /proc/self":     func(g target) error { return os.WriteFile("/proc/self/root"+g.outside, []byte("x"), 0o600) },
		"link in and write":       linkAndWrite,
		"flags of outside":        setFlags,
		"make device":             func(target) error { return unix.Mknod("node", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 7))) },
		"tcp connect":             func(g target) error { return dial("tcp", g.tcp) },
		"udp send":                func(g target) error { return dial("udp", g.tcp) },
		"unix connect":            func(g target) error { return dial("unix", g.socket) },
		"listen":                  listen,
		"datagram pair":           func(target) error { return pair(unix.SOCK_DGRAM) },
		"io_uring":                ioUring,
		"environ of victim":       func(g target) error { return readSecret(fmt.Sprintf("/proc/%d/environ", g.victim)) },
		"memory of victim":        func(g target) error { return openFile(fmt.Sprintf("/proc/%d/mem", g.victim)) },
		"signal victim":           func(g target) error { return unix.Kill(g.victim, unix.SIGCONT) },
		"limits of victim":        func(g target) error { return unix.Prlimit(g.victim, unix.RLIMIT_CORE, nil, &unix.Rlimit{}) },
		"descriptor of victim":    stealDescriptor,
		"new mount namespace":     func(target) error { return unix.Unshare(unix.CLONE_NEWNS) },
		"new user namespace":      func(target) error { return clone("unshare", "-U", "true") },
		"chroot":                  func(target) error { return unix.Chroot(".") },
		"open a file system":      func(target) error { _, err := unix.Fsopen("tmpfs", 0); return err },
		"kernel keyring":          func(target) error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true); return err },
		"sethostname":             sethostname,
		"set attributes of mount": func(target) error { return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{}) },
	}
}

// metadata are what read-only mode refuses besides. Workspace-write mode does
// not: doc.go says so.
func metadata() map[string]func(target) error {
	return map[string]func(target) error{
		"chmod outside":  func(g target) error { return os.Chmod(g.outside, 0o600) },
		"chown outside":  func(g target) error { return os.Chown(g.outside, os.Getuid(), os.Getgid()) },
		"utimes outside": func(g target) error { return unix.Utimes(g.outside, make([]unix.Timeval, 2)) },
		"xattr outside":  func(g target) error { return unix.Setxattr(g.outside, "user.x", []byte("x"), 0) },
	}
}

// truncations are the ways to truncate a file by opening it without a right to write.
func truncations() map[string]func(target) error {
	const neither = unix.O_ACCMODE // neither reading nor writing; ioctl alone
	all := map[string]func(target) error{
		"truncate by openat": func(g target) error { return truncateBy(unix.Openat(unix.AT_FDCWD, g.outside, unix.O_TRUNC, 0)) },
		"truncate by openat for neither": func(g target) error {
			return truncateBy(unix.Openat(unix.AT_FDCWD, g.outside, unix.O_TRUNC|neither, 0))
		},
		"truncate by openat2": func(g target) error {
			return truncateBy(unix.Openat2(unix.AT_FDCWD, g.outside, &unix.OpenHow{Flags: unix.O_TRUNC}))
		},
	}
	maps.Copy(all, archTruncations())
	return all
}

func truncateBy(fd int, err error) error {
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func openTruncated(g target) error {
	return truncateBy(unix.Open(g.outside, unix.O_RDONLY|unix.O_TRUNC, 0))
}

func openFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

func linkAndWrite(g target) error {
	if err := os.Link(g.outside, "linked"); err != nil {
		return err
	}
	return errors.Join(os.WriteFile("linked", []byte("x"), 0o600), os.Remove("linked"))
}

func setFlags(g target) error {
	f, err := os.Open(g.outside)
	if err != nil {
		return err
	}
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	return errors.Join(err, f.Close())
}

func dial(network, address string) error {
	conn, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte("x"))
	return errors.Join(err, conn.Close())
}

func listen(target) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return l.Close()
}

func pair(kind int) error {
	_, err := unix.Socketpair(unix.AF_UNIX, kind, 0)
	return err
}

func ioUring(target) error {
	var params [120]byte
	_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

const secret = "SECRET=hunter2"

func readSecret(path string) error {
	data, err := os.ReadFile(path)
	if err == nil && !bytes.Contains(data, []byte(secret)) {
		err = errors.New("no secret there")
	}
	return err
}

func stealDescriptor(g target) error {
	fd, err := unix.PidfdOpen(g.victim, 0)
	if err != nil {
		return err
	}
	_, err = unix.PidfdGetfd(fd, 0, 0)
	return err
}

func clone(name string, arg ...string) error { return exec.Command(name, arg...).Run() }

func sethostname(target) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	return unix.Sethostname([]byte(name))
}

// newTarget makes what there is to attack.
func newTarget(t *testing.T, p *place) target {
	t.Helper()
	victim := exec.Command("sleep", "1000")
	victim.Env = []string{secret}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = victim.Process.Kill()
		_ = victim.Wait()
	})
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(p.outside, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(tcp.Close(), socket.Close()); err != nil {
			t.Error(err)
		}
	})
	return target{
		outside: filepath.Join(p.outside, "old.txt"), victim: victim.Process.Pid,
		tcp: tcp.Addr().String(), socket: socket.Addr().String(),
	}
}

// strike runs one attempt in a call.
func strike(t *testing.T, p *place, mode session.SandboxMode, name string, g target) (through bool, output string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	words := append([]string{self, attackArg, name}, g.args()...)
	for i, w := range words {
		words[i] = "'" + w + "'"
	}
	res := perform(t, p.ws, mode, shell("exec "+strings.Join(words, " ")))
	if res.Code == "SANDBOX_UNAVAILABLE" || res.ExitCode == 2 || res.ExitCode > 125 {
		t.Fatalf("the attack did not run: %+v", res)
	}
	return res.ExitCode == 0, res.Output
}

func TestNoAttackGetsThrough(t *testing.T) {
	t.Parallel()
	for name := range attempts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			g := newTarget(t, p)
			before := snapshot(t, p.outside)
			for _, mode := range []session.SandboxMode{session.ReadOnly, session.WorkspaceWrite} {
				if mode == session.WorkspaceWrite && slices.Contains([]string{"listen", "udp send", "tcp connect"}, name) {
					continue // its network is the host's
				}
				if through, output := strike(t, p, mode, name, g); through {
					t.Errorf("under %s it got through: %s", mode, output)
				}
			}
			if got := snapshot(t, p.outside); got != before {
				t.Errorf("outside changed from\n%sto\n%s", before, got)
			}
			// Without the fence the attack works, or it shows nothing.
			if through, output := strike(t, p, session.DangerFullAccess, name, g); !through && !here(t).voids(name, g) {
				t.Errorf("the attack is void, it fails unconfined too: %s", output)
			}
		})
	}
}

// TestTruncatingTakesWriting opens a file of the workspace in ways that truncate it
// without a right to write. On a FUSE file system Landlock comes too late for that, so
// the filter refuses it, whatever the file.
func TestTruncatingTakesWriting(t *testing.T) {
	t.Parallel()
	for name := range truncations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			g := target{outside: filepath.Join(p.root, "in.txt")}
			for _, mode := range []session.SandboxMode{session.ReadOnly, session.WorkspaceWrite} {
				if through, output := strike(t, p, mode, name, g); through {
					t.Errorf("under %s it got through: %s", mode, output)
				}
			}
			if got, want := read(t, g.outside), "inside content\n"; got != want {
				t.Errorf("the file holds %q, want %q", got, want)
			}
			if through, output := strike(t, p, session.DangerFullAccess, name, g); !through || read(t, g.outside) != "" {
				t.Errorf("the attack is void, it fails unconfined too: %s", output)
			}
		})
	}
}

// privileged says whether an attack takes root, which this process is not.
func privileged(name string) bool {
	return os.Getuid() != 0 && slices.Contains([]string{
		"make device", "flags of outside", "new mount namespace", "chroot", "open a file system", "sethostname",
		"set attributes of mount",
	}, name)
}

func TestReadOnlyKeepsMetadata(t *testing.T) {
	t.Parallel()
	for name := range metadata() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			g := newTarget(t, p)
			if through, output := strike(t, p, session.ReadOnly, name, g); through {
				t.Errorf("it got through: %s", output)
			}
			if through, output := strike(t, p, session.DangerFullAccess, name, g); !through {
				t.Errorf("the attack is void, it fails unconfined too: %s", output)
			}
		})
	}
}
