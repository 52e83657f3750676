package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
)

func diagnose(t *testing.T, words ...string) (diagnosis, ran) {
	t.Helper()
	r := command{args: append([]string{"doctor", "-o", "json"}, words...)}.run()
	var d diagnosis
	if err := json.NewDecoder(strings.NewReader(r.out)).Decode(&d); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	return d, r
}

// The exit code says whether a tier is had, for the machine and for a workspace.
func TestDoctorJudges(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	for _, require := range append(session.Tiers(), "") {
		words := []string{"--dir", none}
		if require != "" {
			words = append(words, "--require", string(require))
		}
		d, r := diagnose(t, words...)
		want, exit := require, exitDone
		if want == "" {
			want = session.TierNamespaces
		}
		if d.Had.Weaker(want) {
			exit = exitUnheld
		}
		if d.Required != want || d.OK != (exit == exitDone) || r.exit != exit || d.Had != d.Host.Own.Tier {
			t.Errorf("--require %q: exit %d, %+v", require, r.exit, d)
		}
		if d.Deployment.There || d.Deployment.Answers {
			t.Errorf("a deployment in %s: %+v", none, d.Deployment)
		}
	}
	if os.Geteuid() != 0 {
		t.Log("NOT RUN: only root can give files away")
		return
	}
	dir := t.TempDir() // below a directory that is closed to others
	d, _ := diagnose(t, "--dir", none, "--cwd", dir)
	if s := d.Workspace; s == nil || s.Path != dir || s.Owner != 0 || s.Reachable || s.Given || !s.Empty || d.Had != s.Tier {
		t.Errorf("got %+v", d.Workspace)
	}
}

// People read the same in words, with what is to be done.
func TestDoctorTeaches(t *testing.T) {
	t.Parallel()
	o := newOrdinary(t)
	o.give(o.base, true)
	out, exit := o.run("doctor", "--require", "uid", "--cwd", o.base, "--dir", filepath.Join(o.base, "none"))
	for _, word := range []string{
		"kernel ", "Landlock ABI", "launcher ", "tier namespaces", "tier uid        not had", "run the worker as root", "[run-as-root]", "tier landlock", "network loopback",
		"danger-full-access as worker", "workspace " + o.base, "deployment         none in --dir",
	} {
		if !strings.Contains(out, word) {
			t.Errorf("it does not say %q: %s", word, out)
		}
	}
	// With user namespaces an ordinary user has more than what is required.
	had := strings.Contains(out, "tier namespaces had")
	if had != (exit == exitDone) || !had && exit != exitUnheld {
		t.Errorf("exit %d: %s", exit, out)
	}
}

// A deployment that answers says what it requires.
func TestDoctorAsksTheDeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, r := diagnose(t, "--dir", w.dir)
	if !d.Deployment.There || !d.Deployment.Answers || d.Required != session.TierLandlock || r.exit != exitDone {
		t.Errorf("exit %d, %+v", r.exit, d)
	}
	silent := t.TempDir()
	w.must(os.WriteFile(filepath.Join(silent, "token"), []byte("{"), 0o600))
	d, _ = diagnose(t, "--dir", silent, "--require", "landlock")
	if !d.Deployment.There || d.Deployment.Answers || d.Deployment.Error == "" {
		t.Errorf("got %+v", d.Deployment)
	}
}
