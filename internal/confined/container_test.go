//go:build linux && (amd64 || arm64)

package confined_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// container is how a container differs from Docker's default.
type container struct {
	host       string // what the suite is told
	user       int
	noNewPrivs bool
	added      []string // capabilities
}

// TestConfinedContainers runs the suite in containers of runc that are made as
// Docker makes them, without an engine.
func TestConfinedContainers(t *testing.T) {
	for name, c := range containers() {
		t.Run(name, func(t *testing.T) {
			judge(t, c.bundle(t))
		})
	}
}

// TestConfinedContainersAreTold tells the suite that a container has more than it has.
// Were that to pass, the others would show nothing.
func TestConfinedContainersAreTold(t *testing.T) {
	cmd := container{host: dockerSysAdmin}.bundle(t, "-test.run=^TestTiersOfTheHost$")
	c, err := run(t, cmd)
	if want := []string{"TestTiersOfTheHost"}; err == nil || !slices.Equal(c.failed, want) {
		t.Errorf("%v failed, want %v: %v, %v", c.failed, want, err, c.output)
	}
}

// containers are the ways to run a worker that docs/deploy.md names.
func containers() map[string]container {
	return map[string]container{
		"root":                        {host: docker},
		"user without new privileges": {host: docker, user: 1000, noNewPrivs: true},
		"root with CAP_SYS_ADMIN":     {host: dockerSysAdmin, added: []string{"CAP_SYS_ADMIN", "CAP_NET_ADMIN"}},
	}
}

// bundle makes what runc runs, and the command that runs it. The suite is started with
// more besides its arguments.
func (c container) bundle(t *testing.T, more ...string) *exec.Cmd {
	t.Helper()
	dir := newDir(t, 0)
	rootfs := filepath.Join(dir, "rootfs")
	layRoot(t, rootfs)
	spec, err := c.spec(rootfs)
	if err != nil {
		t.Fatal(err)
	}
	spec.Process.Args = append(spec.Process.Args, more...)
	config, err := json.MarshalIndent(spec, "", "\t")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	id, state := filepath.Base(filepath.Dir(dir))+"-"+filepath.Base(dir), filepath.Join(dir, "state")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		// It is gone already unless the suite was cut off.
		_ = exec.CommandContext(ctx, "runc", "--root", state, "delete", "--force", id).Run()
	})
	return exec.CommandContext(t.Context(), "runc", "--root", state, "run", "--bundle", dir, id)
}

// layRoot makes what a container's root file system has of its own: the rest is
// mounted from this machine.
func layRoot(t *testing.T, root string) {
	t.Helper()
	var err error
	for _, dir := range []string{"dev", "etc", "proc", "suite", "sys", "usr", "root"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	temp := filepath.Join(root, "tmp")
	err = errors.Join(err, os.Mkdir(temp, 0o777), os.Chmod(temp, 0o777|fs.ModeSticky),
		os.WriteFile(filepath.Join(root, "etc", "passwd"), []byte("root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"), 0o644))
	for _, name := range tops {
		link, readErr := os.Readlink("/" + name)
		switch path := filepath.Join(root, name); {
		case readErr == nil:
			err = errors.Join(err, os.Symlink(link, path))
		case !errors.Is(readErr, os.ErrNotExist):
			err = errors.Join(err, os.Mkdir(path, 0o755))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tops are the directories of programs and libraries beside /usr. Most systems
// have links into it there.
var tops = []string{"bin", "sbin", "lib", "lib64"}

// borrowed lists the directories that a container has from this machine.
func borrowed() []string {
	dirs := []string{"/usr"}
	for _, name := range tops {
		if info, err := os.Lstat("/" + name); err == nil && info.IsDir() {
			dirs = append(dirs, "/"+name)
		}
	}
	return dirs
}

// spec is Docker's default for a container, as moby's daemon/pkg/oci/defaults.go and
// caps/defaults.go have it at commit 23f2c12c2adc, with its default seccomp profile.
func (c container) spec(rootfs string) (*specs.Spec, error) {
	binary, err := suite()
	if err != nil {
		return nil, err
	}
	s := &specs.Spec{
		Version: "1.0.2", // what the oldest runc in use speaks
		Root:    &specs.Root{Path: rootfs},
		Process: &specs.Process{
			Args: append([]string{"/suite/sandbox.test"}, arguments(c.host, "/suite")...),
			Cwd:  "/", Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
			User:            specs.User{UID: uint32(c.user), GID: uint32(c.user)},
			NoNewPrivileges: c.noNewPrivs,
			Capabilities:    c.capabilities(),
		},
		Hostname: "confined",
		Mounts:   slices.Concat(systemMounts(), binds(borrowed()...)),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.PIDNamespace},
				{Type: specs.IPCNamespace},
			},
			Resources: &specs.LinuxResources{Devices: deviceRules()},
			MaskedPaths: []string{
				"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
				"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
				"/sys/devices/virtual/powercap", "/sys/firmware",
			},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
	s.Mounts = append(s.Mounts, specs.Mount{
		Destination: "/suite", Type: "bind", Source: filepath.Dir(binary), Options: []string{"rbind", "ro"},
	})
	if s.Linux.Seccomp, err = seccomp.GetDefaultProfile(s); err != nil {
		return nil, fmt.Errorf("read the default profile: %w", err)
	}
	return s, nil
}

// capabilities are Docker's fourteen and what was added. Docker leaves a user who
// is not root the bounding set alone.
func (c container) capabilities() *specs.LinuxCapabilities {
	set := append(strings.Fields(`CAP_CHOWN CAP_DAC_OVERRIDE CAP_FSETID CAP_FOWNER CAP_MKNOD CAP_NET_RAW CAP_SETGID
		CAP_SETUID CAP_SETFCAP CAP_SETPCAP CAP_NET_BIND_SERVICE CAP_SYS_CHROOT CAP_KILL CAP_AUDIT_WRITE`), c.added...)
	if c.user != 0 {
		return &specs.LinuxCapabilities{Bounding: set}
	}
	return &specs.LinuxCapabilities{Bounding: set, Permitted: set, Effective: set}
}

func systemMounts() []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{
			Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"},
		},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"ro", "nosuid", "noexec", "nodev"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
	}
}

func binds(dirs ...string) []specs.Mount {
	var mounts []specs.Mount
	for _, dir := range dirs {
		mounts = append(mounts, specs.Mount{Destination: dir, Type: "bind", Source: dir, Options: []string{"rbind", "ro"}})
	}
	return mounts
}

// deviceRules allow null, zero, full, random, urandom, tty and console, and no
// other device.
func deviceRules() []specs.LinuxDeviceCgroup {
	rules := []specs.LinuxDeviceCgroup{{Access: "rwm"}}
	for _, device := range [][2]int64{{1, 3}, {1, 5}, {1, 8}, {1, 9}, {5, 0}, {5, 1}} {
		rules = append(rules, specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &device[0], Minor: &device[1], Access: "rwm"})
	}
	return rules
}
