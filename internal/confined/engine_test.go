//go:build linux && (amd64 || arm64)

package confined_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestConfinedEngine runs the suite in the same containers as made by a Docker
// engine, under the profile, the capabilities and the file system that it has.
func TestConfinedEngine(t *testing.T) {
	dir := newDir(t, 0)
	image := "entail-" + strings.ToLower(filepath.Base(filepath.Dir(dir)))
	layRoot(t, filepath.Join(dir, "rootfs"))
	load := exec.CommandContext(t.Context(), "sh", "-c", `tar -C "$1" -c . | docker import - "$2"`, "sh", filepath.Join(dir, "rootfs"), image)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("make an image: %v: %s", err, out)
	}
	t.Cleanup(func() { runDocker(t, "image", "rm", "--force", image) })
	for name, c := range containers() {
		t.Run(name, func(t *testing.T) {
			judge(t, c.dockerRun(t, image))
		})
	}
}

// dockerRun is the command that has the engine run the container.
func (c container) dockerRun(t *testing.T, image string) *exec.Cmd {
	t.Helper()
	binary, err := suite()
	if err != nil {
		t.Fatal(err)
	}
	name := image + "-" + strings.ReplaceAll(filepath.Base(t.Name()), "_", "-")
	args := []string{
		"run", "--rm", "--name", name, "--network", "none", "--workdir", "/", "--env", "HOME=/root",
		"--user", strconv.Itoa(c.user) + ":" + strconv.Itoa(c.user), "--volume", filepath.Dir(binary) + ":/suite:ro",
	}
	for _, path := range borrowed() {
		args = append(args, "--volume", path+":"+path+":ro")
	}
	for _, capability := range c.added {
		args = append(args, "--cap-add", capability)
	}
	if c.noNewPrivs {
		args = append(args, "--security-opt", "no-new-privileges")
	}
	t.Cleanup(func() { runDocker(t, "rm", "--force", name) })
	return exec.CommandContext(t.Context(), "docker", slices.Concat(args, []string{image, "/suite/sandbox.test"}, arguments(c.host, "/suite"))...)
}

// runDocker cleans up. What is gone already is as it should be.
func runDocker(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput(); err != nil {
		t.Logf("docker %v: %v: %s", args, err, out)
	}
}
