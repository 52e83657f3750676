package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/session"
)

// A configuration file sets what flags there are or is refused: a misspelt setting is
// not lost.
func FuzzConfigFile(f *testing.F) {
	for _, s := range []string{
		"dir: a\nlease: 2s\n", "dir: [a]\n", "dirr: a\n", "dir:\n  sub: a\n", "- a\n", "a: &a [*a]\n", "dir: !!binary aGk=\n", "? [a]\n: b\n",
		"1: a\n", "dir: a\ndir: b\n", "<<: {dir: a}\n", "dir: a\n---\ndir: b\n", "\xff", "", "null",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a := &app{config: filepath.Join(t.TempDir(), configFile)}
		if err := os.WriteFile(a.config, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := &cobra.Command{}
		cmd.Flags().String("config", "", "")
		if err := cmd.Flags().Set("config", a.config); err != nil {
			t.Fatal(err)
		}
		l, err := a.file(cmd)
		if err != nil {
			return
		}
		for _, key := range l.k.Keys() {
			if !slices.Contains(configurable(), key) {
				t.Errorf("%q sets %q, which is no flag", text, key)
			}
		}
	})
}

// An event of any build is shown, or named as one that cannot be.
func FuzzReadEvent(f *testing.F) {
	events, err := os.ReadFile("../../session/testdata/golden/events.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(events[:slices.Index(events, '\n')])
	for _, s := range []string{
		`{"type":"vendor/note","seq":1,"data":[1]}`, `{"type":"tool/decision","seq":1,"data":{"basis":null}}`, `{"type":"turn/end"}`, "null",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if l, err := read("id", session.ClassTurn, line); err == nil {
			_ = l.describe()
		}
	})
}
