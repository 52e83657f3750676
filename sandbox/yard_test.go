//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/attack"
)

// yard is the place that one configuration is attacked in: a workspace and, around
// it, all that attempts aim at. Every attempt has directories of its own.
type yard struct {
	base    string
	program string // package attack's
	target  attack.Target
}

// newYard makes a yard that belongs to the worker's user, who has the key. It stands where every user
// can come.
func newYard(t *testing.T, program string, uid int, key []byte, groups []string) *yard {
	t.Helper()
	base, err := os.MkdirTemp("", "attack-") //nolint:usetesting // t.TempDir lies below a private directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	in := func(name string) string { return filepath.Join(base, name) }
	y := &yard{base: base, program: program, target: attack.Target{
		Outside: in("outside"), Work: in("work"), Data: in("data"), OtherWork: in("other"), Temp: in("temp"),
		Witness: secret, Stream: in("servers/stream"), Datagram: in("servers/datagram"), Rights: in("servers/rights"),
		Abstract: "@" + base, Segment: 1 + rand.IntN(math.MaxInt32), Groups: groups,
	}}
	for _, dir := range []string{y.target.Outside, y.target.Work, y.target.OtherWork, y.target.Temp, in("servers")} {
		mkdir(t, dir)
	}
	mkdir(t, y.target.Data)
	chmod(t, y.target.Data, 0o700)
	chmod(t, base, 0o755)
	for _, a := range attack.Attempts() {
		if y.target.Aims(a.Name) || a.Name == attack.HeldWrite {
			y.furnish(t, a.Name, key)
		}
	}
	y.give(t, uid)
	return y
}

// furnish makes an attempt's directories outside of the workspace.
func (y *yard) furnish(t *testing.T, name string, key []byte) {
	t.Helper()
	outside, _, data, _ := attack.Places(name)
	if out := filepath.Join(y.target.Outside, name); outside {
		mkdir(t, out)
		write(t, filepath.Join(out, attack.File), attack.Content)
		switch name {
		case attack.RemoveDirectory:
			mkdir(t, filepath.Join(out, attack.Empty))
		case attack.HardWrite:
			write(t, filepath.Join(out, attack.Hard), attack.Content)
		case attack.BoundWrite, attack.Unmount:
			mkdir(t, filepath.Join(out, attack.Bound))
			write(t, filepath.Join(out, attack.Bound, attack.File), attack.Content)
		}
	}
	if hidden := filepath.Join(y.target.Data, name); data {
		mkdir(t, filepath.Join(hidden, attack.Store))
		write(t, filepath.Join(hidden, attack.Store, attack.File), attack.Content)
		write(t, filepath.Join(hidden, attack.Token), attack.Content)
		write(t, filepath.Join(hidden, attack.Key), string(key))
		chmod(t, filepath.Join(hidden, attack.Key), 0o600)
	}
}

// give makes the yard the worker's.
func (y *yard) give(t *testing.T, uid int) {
	t.Helper()
	if os.Getuid() == uid {
		return
	}
	err := filepath.WalkDir(y.base, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// callPIDs is more than a call with processes of its own, which counts them from one,
// comes to.
const callPIDs = 8000

// passCallPIDs takes process ids, of threads, until one is above callPIDs. A process
// outside that is started then has an id under which no such call finds another one.
func passCallPIDs() {
	for id := 0; id <= callPIDs; {
		next := make(chan int)
		go func() {
			runtime.LockOSThread() // for good: the thread ends with the goroutine
			next <- unix.Gettid()
		}()
		id = <-next
	}
}

// release starts the victim, as the worker's user, and takes over what it says.
func (y *yard) release(t *testing.T, uid int) {
	t.Helper()
	arg, err := json.Marshal(y.target)
	if err != nil {
		t.Fatal(err)
	}
	victim := exec.Command(y.program, attack.VictimArg, string(arg))
	victim.Env = []string{secret}
	victim.Dir = y.target.Outside
	victim.SysProcAttr = as(uid)
	var complaint bytes.Buffer
	victim.Stderr = &complaint
	in, err := victim.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	passCallPIDs()
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it ends with its input
		if err := victim.Wait(); err != nil {
			t.Errorf("the victim: %v: %s", err, &complaint)
		}
	})
	if err := json.NewDecoder(out).Decode(&y.target); err != nil {
		t.Fatalf("the victim said: %v: %s", err, &complaint)
	}
}

// as is how to start a process as a user.
func as(uid int) *syscall.SysProcAttr {
	if uid == os.Getuid() {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
}

// survey says of each attempt what lies in its directory of dir: names, kinds,
// modes, owners, links, times, attributes, flags and contents.
func survey(dir string) (map[string]string, error) {
	found := map[string]*strings.Builder{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		parts := strings.SplitN(rel, "/", 3)
		if len(parts) < 2 {
			return nil // what all attempts of a group stand in
		}
		name := parts[0] + "/" + parts[1]
		if found[name] == nil {
			found[name] = &strings.Builder{}
		}
		line, err := describe(path)
		fmt.Fprintf(found[name], "%s: %s\n", rel, line)
		return err
	})
	all := map[string]string{}
	for name, b := range found {
		all[name] = b.String()
	}
	return all, err
}

// describe says all that is known of one file.
func describe(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", err
	}
	kind := st.Mode & unix.S_IFMT
	links := st.Nlink
	if kind == unix.S_IFDIR {
		links = 0 // counts what is listed anyway
	}
	line := fmt.Sprintf("mode %o owner %d:%d links %d time %d.%09d", st.Mode, st.Uid, st.Gid, links, st.Mtim.Sec, st.Mtim.Nsec)
	attrs := make([]byte, 1024)
	n, err := unix.Llistxattr(path, attrs)
	if err != nil {
		return "", err
	}
	line += fmt.Sprintf(" attributes %q", attrs[:n])
	if kind != unix.S_IFREG {
		return line, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(path)
	return line + fmt.Sprintf(" flags %x content %q", flags, content), err
}

// damage lists whose directories differ.
func damage(before, after map[string]string) map[string]string {
	harmed := map[string]string{}
	for name := range before {
		if before[name] != after[name] {
			harmed[name] = fmt.Sprintf("\nbefore\n%safter\n%s", before[name], after[name])
		}
	}
	return harmed
}
