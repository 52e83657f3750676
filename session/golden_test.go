package session_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

var update = flag.Bool("update", false, "rewrite the golden JSON lines and the generated table of docs/format.md")

// golden compares JSON lines with a file, byte for byte. Links are never in such
// a file: tests compute them.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("%s (-golden +now): the format has changed:\n%s", file, diff)
	}
}

func TestGoldenEvents(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	seen := map[session.Type]bool{}
	for i, p := range samples() {
		line, err := session.Encode(session.Seq(i), 1700000000000+int64(i), p)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(line)
		lines.WriteByte('\n')
		seen[p.Type()] = true
	}
	for _, spec := range session.Catalogue() {
		if !seen[spec.Type] {
			t.Errorf("no sample of %s", spec.Type)
		}
	}
	golden(t, "events.jsonl", lines.Bytes())
}

// Every field of every payload has a value in some sample, so the golden file
// and the round trip speak of all of them.
func TestSamplesSetEveryField(t *testing.T) {
	t.Parallel()
	missing := map[string]bool{}
	for _, p := range samples() {
		fields(reflect.ValueOf(p), string(p.Type()), missing)
	}
	for field, absent := range missing {
		if absent {
			t.Errorf("no sample sets %s", field)
		}
	}
}

// fields notes for every field under v whether it is zero in all samples.
func fields(v reflect.Value, at string, missing map[string]bool) {
	zero := v.IsZero() && v.Kind() != reflect.Struct
	if before, known := missing[at]; !known || before {
		missing[at] = zero
	}
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		name := at
		if !v.Type().Field(i).Anonymous {
			name += "." + v.Type().Field(i).Name
		}
		fields(v.Field(i), name, missing)
	}
}

// handHash is H of ARCHITECTURE 3, written again: SHA-256 over each field as its
// length in four big-endian bytes and its bytes.
func handHash(fields ...string) string {
	var b []byte
	for _, f := range fields {
		n := len(f)
		b = append(b, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
		b = append(b, f...)
	}
	sum := sha256.Sum256(b)
	return string(sum[:])
}

// handBase is the link that stands before a session's first own event.
func handBase(prev, header string) string { return handHash("entail/header/1", prev, header) }

// handLink chains event lines of one session and class.
func handLink(before string, id session.ID, class string, lines ...string) string {
	for _, line := range lines {
		before = handHash("entail/event/1", before, string(id), class, line)
	}
	return before
}

func hexLink(l string) string { return hex.EncodeToString([]byte(l)) }

var noPrefix = strings.Repeat("\x00", 32)

// wantHeaders compares a record's headers, all of them.
func wantHeaders(t *testing.T, raw session.Raw, want map[string]string) {
	t.Helper()
	want["Entail-Format"] = "1"
	want["Entail-Writer"] = "test one 1"
	if diff := cmp.Diff(want, raw.Headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func bodyLines(raw session.Raw) []string {
	return strings.Split(strings.TrimSuffix(string(raw.Body), "\n"), "\n")
}

func links(before, after string) string { return hexLink(before) + " " + hexLink(after) }

// tree writes one record of every kind and returns them by name.
func tree(t *testing.T) (map[string]session.Raw, *sessiontest.Stream, session.ID) {
	t.Helper()
	s := sessiontest.NewStream(t)
	raws := map[string]session.Raw{}
	root := s.Root(
		&session.PresetSwitch{Preset: session.PresetReadOnly, By: person()},
		&session.SandboxSwitch{Mode: session.ReadOnly, By: person()}, sessiontest.Model(), prompt("m1"),
	)
	raws["root"] = s.Records[0]
	raws["turn"] = s.Write(root, session.ClassTurn, claim(1, session.CauseStart), &session.TurnStart{Turn: 1},
		&session.Consumed{Turn: 1, Seqs: []session.Seq{3}})
	s.Write(root, session.ClassTurn, turnEnd(1))
	raws["policy"] = s.Write(root, session.ClassPolicy, &session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()})
	raws["inbox"] = s.Write(root, session.ClassInbox, prompt("m2"))
	openCalls(s, root, 2, session.ToolDelegate, session.ToolDelegate)
	s.Delegate(root, sessiontest.Delegation{Call: "2.1.0", Kind: session.Spawn})
	raws["child"] = s.Records[len(s.Records)-1]
	s.Delegate(root, sessiontest.Delegation{Call: "2.1.1", Kind: session.Fork})
	raws["fork-child"] = s.Records[len(s.Records)-1]
	return raws, s, root
}

func TestGoldenRecords(t *testing.T) {
	t.Parallel()
	raws, s, root := tree(t)
	source := s.Root()
	s.Fork(source)
	raws["persons-fork"] = s.Records[len(s.Records)-1]
	for name, raw := range raws {
		golden(t, filepath.Join("records", name+".jsonl"), raw.Body)
	}
	rootBase := handBase(noPrefix, bodyLines(raws["root"])[0])
	sectionIs(t, raws["root"], rootBase, root, "genesis", map[string]string{
		"Entail-Seq": "0", "Entail-Count": "4", "Entail-Creator": string(root),
	}, 1)
	after := handLink(rootBase, root, "genesis", bodyLines(raws["root"])[1:]...)
	sectionIs(t, raws["turn"], after, root, "turn", map[string]string{
		"Entail-Seq": "4", "Entail-Count": "3", "Entail-Epoch": "1",
	}, 0)
	after = handLink(after, root, "turn", append(bodyLines(raws["turn"]), bodyLines(s.Records[2])...)...)
	sectionIs(t, raws["policy"], after, root, "policy", map[string]string{
		"Entail-Seq": "8", "Entail-Count": "1", "Entail-Epoch": "1",
	}, 0)
	after = handLink(after, root, "policy", bodyLines(raws["policy"])...)
	sectionIs(t, raws["inbox"], after, root, "inbox", map[string]string{
		"Entail-Seq": "9", "Entail-Count": "1", "Entail-Epoch": "1",
	}, 0)

	lines := bodyLines(raws["persons-fork"])
	prev := handLink(handBase(noPrefix, headerLine(s.Records[len(s.Records)-2])), source, "genesis", bodyLines(s.Records[len(s.Records)-2])[1:]...)
	fork := raws["persons-fork"].Address.Session
	sectionIs(t, raws["persons-fork"], handBase(prev, lines[0]), fork, "genesis", map[string]string{
		"Entail-Seq": "1", "Entail-Count": "2", "Entail-Creator": string(fork),
	}, 1)
}

// sectionIs checks the headers of a record with one section that starts after
// skip lines and follows the link before.
func sectionIs(t *testing.T, raw session.Raw, before string, id session.ID, class string, want map[string]string, skip int) {
	t.Helper()
	want["Entail-Link"] = links(before, handLink(before, id, class, bodyLines(raw)[skip:]...))
	wantHeaders(t, raw, want)
}

func headerLine(raw session.Raw) string { return bodyLines(raw)[0] }

// A child's genesis has two sections: the parent's decision, chained in the
// parent's log with class turn, and the child's own (SPEC 3.1, 4.4).
func TestGoldenChildGenesis(t *testing.T) {
	t.Parallel()
	raws, s, root := tree(t)
	at := handBase(noPrefix, headerLine(s.Records[0]))
	at = handLink(at, root, "genesis", bodyLines(s.Records[0])[1:]...)
	var cut string
	for _, raw := range s.Records[1:6] {
		at = handLink(at, root, string(raw.Address.Class), bodyLines(raw)...)
		if strings.Contains(string(raw.Body), `"type":"turn/end"`) {
			cut = at
		}
	}
	for _, tt := range []struct {
		name, prev       string
		seq, own, events string
	}{
		{"child", noPrefix, "0", "16", "5"},
		{"fork-child", cut, "8", "17", "6"},
	} {
		raw := raws[tt.name]
		lines := bodyLines(raw)
		id := raw.Address.Session
		base := handBase(tt.prev, lines[1])
		first := handLink(base, id, "genesis", lines[2:]...)
		wantHeaders(t, raw, map[string]string{
			"Entail-Seq": tt.own, "Entail-Count": "1", "Entail-Epoch": "2",
			"Entail-Link":      links(at, handLink(at, root, "turn", lines[0])),
			"Entail-Child-Seq": tt.seq, "Entail-Child-Count": tt.events, "Entail-Child-Link": links(base, first),
		})
		if want := fmt.Sprintf(`"childLink":"%x"`, first); !strings.Contains(lines[0], want) {
			t.Errorf("%s: the decision %s does not name %s", tt.name, lines[0], want)
		}
		at = handLink(at, root, "turn", lines[0])
	}
}
