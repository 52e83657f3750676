//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What /proc says on hosts of every kind leads to the cgroup that counts.
func TestOwnCgroupIsFound(t *testing.T) {
	t.Parallel()
	const (
		v1 = "30 25 0:26 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids\n"
		v2 = "31 25 0:27 / /sys/fs/cgroup/unified rw,relatime shared:10 - cgroup2 cgroup2 rw\n"
	)
	for name, tt := range map[string]struct {
		own, mounts, dir string
		second           bool
	}{
		"version 1":                {"8:pids:/a/b\n4:memory:/c\n", v1, "/sys/fs/cgroup/pids/a/b", false},
		"both":                     {"8:pids:/\n0::/x\n", v2 + v1, "/sys/fs/cgroup/pids", false},
		"with another controller":  {"8:cpu,pids:/a\n", strings.Replace(v1, "rw,pids", "rw,cpu,pids", 1), "/sys/fs/cgroup/pids/a", false},
		"version 2":                {"0::/system.slice/entail.service\n", v2, "/sys/fs/cgroup/unified/system.slice/entail.service", true},
		"its own cgroup namespace": {"0::/\n", strings.Replace(v2, "/unified", "", 1), "/sys/fs/cgroup", true},
		"the host's, in a container": {
			"8:pids:/docker/1f/x\n", strings.Replace(v1, " / ", " /docker/1f ", 1), "/sys/fs/cgroup/pids/x", false,
		},
		"of another part": {"8:pids:/docker/1f2\n", strings.Replace(v1, " / ", " /docker/1f ", 1), "", false},
		"mounted nowhere": {"8:pids:/a\n", v2, "", false},
		"none":            {"4:memory:/c\n", v1, "", false},
		"nothing":         {"", "", "", false},
	} {
		dir, second, err := locate(tt.own, tt.mounts)
		if dir != tt.dir || err == nil && second != tt.second || (err == nil) != (tt.dir != "") {
			t.Errorf("%s: got %q, %t, %v, want %q, %t", name, dir, second, err, tt.dir, tt.second)
		}
	}
}

// What a worker that died has left is removed by the next one, and nothing else is.
func TestCgroupsOfTheDeadAreRemoved(t *testing.T) {
	t.Parallel()
	c, err := openCgroups()
	if err != nil {
		t.Logf("NOT RUN: %v", err)
		return
	}
	mine, err := c.open(16)
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(c.dir, groupPrefix+"1-99999999999-ABC") // process 1 was not started then
	other := filepath.Join(c.dir, "other-"+filepath.Base(mine.path))
	for _, path := range []string{dead, other} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openCgroups(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead one's: %v", err)
	}
	for _, path := range []string{mine.path, other} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("what is not the dead one's: %v", err)
		}
	}
	if err := os.Remove(other); err != nil {
		t.Error(err)
	}
	mine.close()
	if _, err := os.Lstat(mine.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a cgroup that was closed: %v", err)
	}
}
