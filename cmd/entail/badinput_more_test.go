package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// together are inputs of which each makes sense, and all of them none.
func (w *badWorld) together(t *testing.T) {
	t.Helper()
	// Its line ends take two bytes in a log.
	w.must(os.WriteFile("long.yaml", []byte(strings.Repeat("#\n", 120<<10)+"sessions:\n  root:\n    - text: fine\n"), 0o600))
	w.before = w.traces()
	prompt := strings.Repeat("x", 450<<10)
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"policy", "set", w.idle}, []string{"exactly one of --sandbox, --approvals and --preset"}},
		{[]string{"policy", "set", w.idle, "--sandbox=read-only", "--approvals=never"}, []string{"exactly one of --sandbox, --approvals and --preset"}},
		{[]string{"session", "new", "--model=scripted:story.yaml", "--preset=read-only", "--sandbox=read-only"}, []string{"--preset sets sandbox and approvals", "give it alone"}},
		{[]string{"run", "--model=scripted:story.yaml", "--preset=read-only", "--approvals=ask", "go"}, []string{"--preset sets sandbox and approvals", "give it alone"}},
		{[]string{"verify", w.idle, "--export=sub"}, []string{"a session or --export, not both"}},
		{[]string{"send", w.idle}, []string{"entail send takes", "MESSAGE"}},
		{[]string{"explain", w.idle}, []string{"entail explain takes", "CALL"}},
		{[]string{"session", "release", w.idle}, []string{"a release needs a reason", "--reason"}},
		{[]string{"session", "release", w.idle, "--reason=why"}, []string{"not stopped", "nothing to release"}},
		{[]string{"config", "set", "confinement.require", "none"}, []string{`"confinement.require" to "none"`, "is not one of [namespaces uid landlock]", "`entail config get`"}},
		{[]string{"config", "set", "confinement.network.read-only", "127.0.0.1"}, []string{`"confinement.network.read-only" to "127.0.0.1"`, "one of [deny loopback allow]"}},
		{[]string{"config", "set", "confinement.network", `{"read-only":"deny"}`}, []string{`leaves out "workspace-write"`, `"confinement.network.workspace-write" alone`}},
		{[]string{"config", "set", "confinement.network.danger-full-access", "deny"}, []string{"unknown setting", "`entail config get` lists"}},
		{[]string{"config", "set", "confinement.uids.first", "0"}, []string{`"confinement.uids.first" to 0`, "below 1000", "system's own users"}},
		{[]string{"config", "set", "confinement.uids.first", "1.5"}, []string{`"confinement.uids.first" to 1.5`, "`entail config get`"}},
		{[]string{"config", "set", "confinement.uids.count", "0"}, []string{"no user for any tree"}},
		{[]string{"config", "set", "confinement.uids.count", "4294967295"}, []string{"go beyond 4294967294"}},
		{[]string{"config", "set", "confinement.uids", `{"first":60000,"count":10000}`}, []string{"include 65534, which is nobody"}},
		{[]string{"config", "set", "confinement.fullAccessAs", "root"}, []string{`"root" is neither "tree" nor "worker"`}},
		{[]string{"config", "set", "confinement.limits.time", "0s"}, []string{"time 0s is not above 0"}},
		{[]string{"config", "set", "confinement.limits.cpu", "60"}, []string{`"confinement.limits.cpu" to 60`, "`entail config get`"}},
		{[]string{"config", "set", "confinement.limits.fileSize", "1024"}, []string{"nor at least 1048576"}},
		{[]string{"config", "set", "confinement.limits.openFiles", "63"}, []string{"nor at least 64"}},
		// Each fits into a record, both do not.
		{[]string{"session", "new", "--model=scripted:long.yaml", prompt}, []string{"the prompt (460800 bytes) does not fit", "beside the script", "shorten one"}},
		{[]string{"run", "--model=scripted:long.yaml", prompt}, []string{"the prompt (460800 bytes) does not fit", "beside the script", "shorten one"}},
	} {
		exit := exitUsage
		if strings.Contains(tt.says[0], "not stopped") {
			exit = exitFailed
		}
		what := strings.Join(tt.args, " ")
		w.refused(t, what[:min(len(what), 80)], command{args: append(tt.args, "--dir", w.dir)}, exit, tt.says...)
	}
}

// Configuration gives new sessions their policy and a server its workers. It
// switches no session that is there and names no member of a fleet.
func TestGivenFlagsAreNotConfigured(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	c := command{args: []string{"keys", "init", dir}, env: map[string]string{"ENTAIL_WORKERS": "4"}}
	if r := c.run(); r.exit != exitDone {
		t.Fatalf("exit %d: %s", r.exit, r.err)
	}
	if _, err := os.Stat(filepath.Join(dir, "worker-w1.json")); err != nil {
		t.Errorf("worker w1 has no credentials: %v", err)
	}
	c = command{args: []string{"policy", "set", unknownID}, env: map[string]string{"ENTAIL_SANDBOX": "danger-full-access"}}
	if r := c.run(); r.exit != exitUsage || !strings.Contains(r.err, "exactly one") {
		t.Errorf("a knob from the environment: exit %d, %s", r.exit, r.err)
	}
	c.args = append(c.args, "--approvals", "never", "--dir", filepath.Join(dir, "none"))
	if r := c.run(); r.exit != exitUnavailable { // it came as far as asking
		t.Errorf("a knob from the environment beside one that is given: exit %d, %s", r.exit, r.err)
	}
}

// A port that is taken is told before anything is made for a broker on it.
func TestTakenPortIsRefused(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	story := filepath.Join(t.TempDir(), "story.yaml")
	if err := os.WriteFile(story, []byte("sessions:\n  root:\n    - text: fine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"up"}, {"run", "--cwd", work, "--model", "scripted:" + story, "go"}} {
		r := command{args: append(args, "--dir", filepath.Join(work, "data"), "--port", port)}.run()
		if r.exit != exitUnavailable || !strings.Contains(r.err, "127.0.0.1:"+port) || !strings.Contains(r.err, "another with --port") {
			t.Errorf("entail %v: exit %d: %s%s", args, r.exit, r.err, r.out)
		}
		if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
			t.Errorf("entail %v left %v (%v)", args, left, err)
		}
	}
}

// What entail up starts cannot be started by hand: it has no order.
func TestProcessesAreNotTyped(t *testing.T) {
	t.Parallel()
	binary, err := exec.LookPath("entail")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"coordinator", "worker"} {
		cmd := exec.CommandContext(t.Context(), binary, "process", kind)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != exitUsage || !strings.Contains(string(out), "started by entail up, not by hand") {
			t.Errorf("entail process %s: exit %d (%v): %s", kind, code, err, out)
		}
		if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 {
			t.Errorf("entail process %s left %v (%v)", kind, left, err)
		}
	}
}
