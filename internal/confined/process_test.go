//go:build linux && (amd64 || arm64)

package confined_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// nobody is the user of processes that are to be nobody's.
const nobody = 65534

// TestConfinedProcesses runs the suite on the host itself.
func TestConfinedProcesses(t *testing.T) {
	for _, tt := range []struct {
		name string
		user int
		with []string // what setpriv does besides
	}{
		{name: "root"},
		{name: "root without new privileges", with: []string{"--no-new-privs"}},
		{name: "nobody", user: nobody},
		{name: "nobody without new privileges", user: nobody, with: []string{"--bounding-set=-all", "--no-new-privs"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			judge(t, process(t, tt.user, tt.with))
		})
	}
}

// process runs the suite as user, who holds no capability unless it is root.
func process(t *testing.T, user int, with []string) *exec.Cmd {
	t.Helper()
	binary, err := suite()
	if err != nil {
		t.Fatal(err)
	}
	dir := newDir(t, user)
	id := strconv.Itoa(user)
	args := slices.Concat([]string{"--reuid=" + id, "--regid=" + id, "--clear-groups"}, with, []string{binary}, arguments(machine, filepath.Dir(binary)))
	cmd := exec.CommandContext(t.Context(), "setpriv", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir, "TMPDIR=" + dir}
	return cmd
}
