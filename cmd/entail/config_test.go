package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// effectiveOf runs `config effective` and returns its settings by key.
func effectiveOf(t *testing.T, environ []string, args ...string) map[string]setting {
	t.Helper()
	var out bytes.Buffer
	a := &app{
		in: strings.NewReader(""), out: &out, err: &out, environ: environ,
		lookup: func(string) (string, bool) { return "", false },
	}
	if exit := a.execute(append([]string{"config", "effective", "-o", "json"}, args...)); exit != exitDone {
		t.Fatalf("config effective exits with %d: %s", exit, out.String())
	}
	got := map[string]setting{}
	for line := range strings.Lines(out.String()) {
		var s setting
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		got[s.Key] = s
	}
	return got
}

func TestConfigPrecedence(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "entail.yaml")
	text := "dir: from-file\nserver: nats://file:1\nlease: 2s\nworkers: 3\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"ENTAIL_DIR=from-env", "ENTAIL_SERVER=nats://env:1", "ENTAIL_API_KEY_FILE=/key", "OTHER=x"}
	got := effectiveOf(t, environ, "--config", file, "--dir", "from-flag")
	for key, want := range map[string]setting{
		"dir":          {"dir", "from-flag", "flag"},
		"server":       {"server", "nats://env:1", "environment"},
		"api-key-file": {"api-key-file", "/key", "environment"},
		"lease":        {"lease", "2s", file},
		"workers":      {"workers", "3", file},
		"cwd":          {"cwd", ".", "default"},
	} {
		if got[key] != want {
			t.Errorf("%s is %+v, want %+v", key, got[key], want)
		}
	}
}

// A value reaches the command's flag, not only the dump.
func TestConfigReachesTheCommand(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := &app{
		in: strings.NewReader(""), out: &out, err: &out, lookup: func(string) (string, bool) { return "", false },
		environ: []string{"ENTAIL_TOKEN_FILE=/nowhere/token", "ENTAIL_OUTPUT=json"},
	}
	exit := a.execute([]string{"session", "ls"})
	if exit != exitUnavailable || !strings.Contains(out.String(), `"message":"no deployment: /nowhere/token`) {
		t.Errorf("exit %d, output %s", exit, out.String())
	}
}
