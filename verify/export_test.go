package verify_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/verify"
)

const rootID = session.ID("00" + ulid)

// export writes the deployment's one tree and opens it.
func export(t *testing.T, d *deployment) (string, verify.Source) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	if err := verify.Export(t.Context(), d, dir, rootID); err != nil {
		t.Fatal(err)
	}
	src, err := verify.OpenExport(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, src
}

func verifySource(t *testing.T, src verify.Source, opt verify.Options) verify.Report {
	t.Helper()
	r, err := verify.Run(t.Context(), src, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// everyTree is the clean trees and those with a fault.
func everyTree() map[string]func(*deployment) {
	all := maps.Clone(cleanTrees)
	for _, f := range allFaults() {
		all[f.invariant+" "+f.name] = func(d *deployment) { f.build(d) }
	}
	return all
}

func TestExportSaysWhatTheDeploymentSays(t *testing.T) {
	t.Parallel()
	for name, build := range everyTree() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, build)
			if d.raws[0].Address.Session != rootID {
				return // a tree without a root cannot be exported
			}
			_, src := export(t, d)
			opt := verify.Options{Mirror: d.mirror(), AtRest: true}
			want, got := verifySource(t, d, opt), verifySource(t, src, opt)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("verify of the export differs: %s", diff)
			}
		})
	}
}

func TestExportKeepsRecordsAsTheyWere(t *testing.T) {
	t.Parallel()
	for name, build := range everyTree() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, build)
			if d.raws[0].Address.Session != rootID {
				return
			}
			_, src := export(t, d)
			for id := range d.logs {
				if diff := cmp.Diff(recordsOf(t, d, id), recordsOf(t, src, id)); diff != "" {
					t.Errorf("records of %s differ: %s", id, diff)
				}
			}
		})
	}
}

func recordsOf(t *testing.T, src verify.Source, id session.ID) []session.Raw {
	t.Helper()
	var out []session.Raw
	err := src.Records(t.Context(), id, func(raw session.Raw) error {
		raw.Body = append([]byte{}, raw.Body...)
		if raw.Headers == nil {
			raw.Headers = map[string]string{}
		}
		out = append(out, raw)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func lines(t *testing.T, name string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
}

func TestExportedFilesHaveTheReferencesShape(t *testing.T) {
	t.Parallel()
	d := deploy(t, treeFork)
	dir, _ := export(t, d)
	for id, l := range d.logs {
		got := lines(t, filepath.Join(dir, string(id)+".jsonl"))
		var h map[string]any
		if err := json.Unmarshal(got[0], &h); err != nil {
			t.Fatal(err)
		}
		seeded := l.header.FirstLiveSeq > 0
		if h["type"] != "session" || h["version"] != 3.0 || h["isSeeded"] != seeded || h["id"] != string(id) || h["cwd"] != "/work/repo" {
			t.Errorf("header line %s, want type session, version 3, isSeeded %v", got[0], seeded)
		}
		if n := int(l.next); len(got)-1 != n {
			t.Fatalf("%s has %d events, want the log's %d, prefix included", id, len(got)-1, n)
		}
		for i, line := range got[1:] {
			var e map[string]json.RawMessage
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"data", "seq", "time", "type"}, slices.Sorted(maps.Keys(e))); diff != "" {
				t.Errorf("event line %s: %s", line, diff)
			}
			if !stored(d, line) {
				t.Errorf("line %d of %s is not the stored bytes: %s", i+1, id, line)
			}
		}
	}
}

func stored(d *deployment, line []byte) bool {
	return slices.ContainsFunc(d.raws, func(r session.Raw) bool { return bytes.Contains(r.Body, append(bytes.Clone(line), '\n')) })
}

// withoutRecords removes the records files of an export.
func withoutRecords(t *testing.T, dir string) verify.Source {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.records.jsonl"))
	if err != nil || len(names) == 0 {
		t.Fatalf("records files %v, %v", names, err)
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	src, err := verify.OpenExport(dir)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func TestEventsAloneAreCheckedForI1AndI12(t *testing.T) {
	t.Parallel()
	for name, build := range cleanTrees {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := export(t, deploy(t, build))
			r := verifySource(t, withoutRecords(t, dir), verify.Options{})
			wantClean(t, r)
			if diff := cmp.Diff([]string{"I1", "I12"}, r.Checked); diff != "" {
				t.Errorf("checked: %s", diff)
			}
			const why = ": the export has no records file"
			want := []string{"I2" + why, "I3" + why, "I4" + why, "I5" + why, "I6" + why, "I7" + why, "I9: no mirror was given", "I11" + why}
			if diff := cmp.Diff(want, r.NotChecked); diff != "" {
				t.Errorf("not checked: %s", diff)
			}
		})
	}
	for _, f := range append(faultsOfPolicy(), faultsOfWidth()...) {
		t.Run(f.invariant+" "+f.name, func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t)
			w := f.build(d)
			dir, _ := export(t, d)
			if w.clause == "4.4" {
				return // seen in the record alone
			}
			wantFinding(t, verifySource(t, withoutRecords(t, dir), verify.Options{}), f.invariant, w)
		})
	}
}

func TestEventsAloneMustFollowEachOther(t *testing.T) {
	t.Parallel()
	dir, _ := export(t, deploy(t, treeOfOne))
	src := withoutRecords(t, dir)
	name := filepath.Join(dir, string(rootID)+".jsonl")
	all := lines(t, name)
	cut := append(bytes.Join(slices.Delete(all, 2, 3), []byte("\n")), '\n')
	if err := os.WriteFile(name, cut, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := verify.Run(t.Context(), src, verify.Options{}); err == nil || !strings.Contains(err.Error(), "seq 2 where 1") {
		t.Errorf("an event was taken out: got %v", err)
	}
}

func TestExportRefuses(t *testing.T) {
	t.Parallel()
	d := deploy(t, treeFork)
	parent := t.TempDir()
	if err := verify.Export(t.Context(), d, parent, rootID); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("export into a directory that exists: got %v", err)
	}
	missing := strings.Replace(string(rootID), "v4", "v5", 1)
	err := verify.Export(t.Context(), d, filepath.Join(parent, "out"), session.ID(missing))
	if !errors.Is(err, session.ErrNotFound) {
		t.Errorf("export of an unknown root: got %v, want ErrNotFound", err)
	}
	left, err := os.ReadDir(parent)
	if err != nil || len(left) > 0 {
		t.Errorf("a refused export left %v behind (%v)", left, err)
	}
}

func TestOpenExportRefuses(t *testing.T) {
	t.Parallel()
	if _, err := verify.OpenExport(t.TempDir()); err == nil {
		t.Error("an empty directory was opened")
	}
	dir, _ := export(t, deploy(t, treeFork))
	if err := os.Remove(filepath.Join(dir, string(rootID)+".records.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, err := verify.OpenExport(dir); err == nil || !strings.Contains(err.Error(), string(rootID)) {
		t.Errorf("one records file is missing: got %v", err)
	}
}

// TestChangedExportIsNoticed changes files of an export: each change is a finding
// or makes the export unreadable, with the file's name.
func TestChangedExportIsNoticed(t *testing.T) {
	t.Parallel()
	forkID := session.ChildID(rootID, "2.1.0")
	tests := []struct {
		name, file string
		change     func(string) string
		finding    string // an invariant, or
		err        string
	}{
		{"an event", string(rootID) + ".jsonl", func(s string) string { return strings.Replace(s, `"worker":"w1"`, `"worker":"w2"`, 1) }, "", "prefix"},
		{"an event after the cut", string(forkID) + ".jsonl", func(s string) string {
			i := strings.LastIndex(s, `"content":"ok"`)
			return s[:i] + `"content":"ko"` + s[i+len(`"content":"ok"`):]
		}, "I11", ""},
		{"the header", string(forkID) + ".jsonl", func(s string) string { return strings.Replace(s, "/work/repo", "/work/repa", 1) }, "I11", ""},
		{"an event too many", string(rootID) + ".jsonl", func(s string) string { return s + s[strings.LastIndex(s[:len(s)-1], "\n")+1:] }, "", "no record holds"},
		{"an event too few", string(rootID) + ".jsonl", func(s string) string { return s[:strings.LastIndex(s[:len(s)-1], "\n")+1] }, "", "not in the events file"},
		{"a record too few", string(rootID) + ".records.jsonl", func(s string) string { return s[strings.Index(s, "\n")+1:] }, verify.Log, ""},
		{"half a line", string(forkID) + ".records.jsonl", func(s string) string { return s[:len(s)-5] }, "", "no end"},
		{"a stray field", string(forkID) + ".records.jsonl", func(s string) string { return strings.Replace(s, `"class"`, `"klass"`, 1) }, "", "line 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, src := export(t, deploy(t, treeFork))
			name := filepath.Join(dir, tt.file)
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(tt.change(string(b))), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := verify.Run(t.Context(), src, verify.Options{})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v and error %v, want an error with %q", r.Findings, err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(r.Findings, func(f verify.Finding) bool { return f.Invariant == tt.finding }) {
				t.Errorf("got %v, want a finding of %s", r.Findings, tt.finding)
			}
		})
	}
}
