package golden_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// directories lists what earlier builds wrote.
func directories(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("testdata")
	must(t, err)
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	for _, dir := range []string{"first", "format-1", newest(), fmt.Sprintf("store-%d", storeFormat(t))} {
		if !slices.Contains(out, dir) {
			t.Fatalf("testdata holds %q, want %s too", out, dir)
		}
	}
	return out
}

// storeFormat is the version that package sessionstore gives its stores. It is nobody
// else's business, so it is read where it stands.
func storeFormat(t *testing.T) (version int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "sessionstore", "key.go"))
	must(t, err)
	_, after, _ := strings.Cut(string(text), "\nconst storeFormat =")
	_, err = fmt.Sscan(after, &version)
	must(t, err)
	return version
}

// want is what SPEC says that a session of the story comes to.
type want struct {
	sandbox   session.SandboxMode // effective
	approval  session.ApprovalPolicy
	current   session.Preset
	delegated bool // sandbox and approvals were handed down
	cut, next session.Seq
	depth     int
	turn      int
	end       session.EndKind
	ended     session.EndOutcome
	pending   int
	slots     []session.ID // children that hold one
	voids     int
	parked    bool
	pinned    bool   // approvals alone were handed down
	needs     string // of a worker
	format    int    // 0 for the first
}

// wants is worked out by hand from the story: clauses 1.7, 1.8, 2.1 to 2.3, 4.2,
// 4.3, 4.11, 7.3 and 7.4. The deployment's defaults are read-only and ask.
func wants(dir string) map[session.ID]want {
	out := map[session.ID]want{
		keeper: {
			sandbox: session.ReadOnly, approval: session.Ask, current: session.PresetReadOnly, next: 39,
			turn: 2, end: session.EndAborted, slots: []session.ID{fork}, voids: 2,
		},
		child: {
			sandbox: session.WorkspaceWrite, approval: session.Never, current: session.PresetCustom, delegated: true, depth: 1, next: 23,
			turn: 1, end: session.EndCompleted, ended: session.OutcomeDenials, slots: []session.ID{grand},
		},
		grand:    {sandbox: session.ReadOnly, approval: session.Never, current: session.PresetCustom, delegated: true, depth: 2, next: 5, pending: 1},
		fork:     {sandbox: session.ReadOnly, approval: session.Never, current: session.PresetCustom, delegated: true, depth: 1, cut: 18, next: 24, pending: 1, turn: 1},
		persons:  {sandbox: session.WorkspaceWrite, approval: session.Ask, current: session.PresetWorkspaceWrite, cut: 39, next: 43, pending: 1, turn: 2},
		full:     {sandbox: session.DangerFullAccess, approval: session.Never, current: session.PresetFullAccess, next: 15, turn: 1, slots: []session.ID{fullkid}, parked: true},
		fullkid:  {sandbox: session.DangerFullAccess, approval: session.Never, current: session.PresetFullAccess, delegated: true, depth: 1, next: 6, pending: 1},
		released: {sandbox: session.ReadOnly, approval: session.Ask, current: session.PresetReadOnly, next: 4, pending: 1},
		broken:   {sandbox: session.ReadOnly, approval: session.Never, current: session.PresetCustom, next: 2},
	}
	if dir == newest() {
		const needs = "gpu zone=b uid"
		out[needy] = want{sandbox: session.ReadOnly, approval: session.Ask, current: session.PresetReadOnly, next: 11, slots: []session.ID{needykid}, turn: 1, needs: needs, format: 2}
		out[needykid] = want{
			sandbox: session.ReadOnly, approval: session.Never, current: session.PresetCustom, next: 4, pending: 1, depth: 1, pinned: true, needs: needs, format: 2,
		}
	}
	return out
}

// newest is the directory that has what the newest format added.
func newest() string { return fmt.Sprintf("format-%d", session.FormatVersion) }

// summarised is what a state comes to.
func summarised(s session.State, voids int) want {
	settings := policy.DefaultSettings()
	d := policy.Deployment{Settings: settings, Revision: 1}
	e := policy.EffectiveOf(s.Knobs, d)
	w := want{
		sandbox: e.Sandbox, approval: e.Approval, current: policy.Current(s.Knobs, d),
		delegated: s.Knobs.Sandbox.Source == session.SourceDelegation && s.Knobs.Approval.Source == session.SourceDelegation,
		cut:       s.Header.InheritedEventCount, next: s.Next, depth: s.Header.DelegationDepth,
		turn: s.Turn, pending: len(s.Pending), voids: voids, parked: s.Open != nil && s.Open.Parked,
	}
	w.pinned = !s.Knobs.Sandbox.Set() && s.Knobs.Approval.Source == session.SourceDelegation
	if n := s.Header.Needs; n != nil {
		w.needs = strings.Join(append(slices.Clone(n.Labels), string(n.Tier)), " ")
	}
	if s.Format != session.FormatFirst {
		w.format = s.Format
	}
	if s.LastEnd != nil {
		w.end = s.LastEnd.Reason.Kind
	}
	if s.Ended != nil {
		w.ended = s.Ended.Outcome
	}
	for _, c := range s.Children {
		w.slots = append(w.slots, c.ID)
	}
	return w
}

// Each session of the log folds to what the story says, whatever build wrote it; one
// that was stopped is stopped where it was.
func TestOldLogsFold(t *testing.T) {
	t.Parallel()
	for _, dir := range directories(t) {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			r := sessiontest.Replay(readRecords(t, dir))
			for id, want := range wants(dir) {
				c := r.Chains[id]
				if c == nil {
					t.Errorf("session %s cannot be opened: %v", id, r.Failed[id])
					continue
				}
				if diff := gocmp.Diff(want, summarised(c.State(), c.Voids()), gocmp.AllowUnexported(want)); diff != "" {
					t.Errorf("session %s (-story +folded):\n%s", id, diff)
				}
				if stopped := c.Halted() != nil; stopped != (id == broken) {
					t.Errorf("session %s is stopped: %v", id, c.Halted())
				}
			}
			if len(r.Chains) != len(wants(dir)) {
				t.Errorf("%d sessions can be opened, the story has %d", len(r.Chains), len(wants(dir)))
			}
		})
	}
}

// Links are what docs/format.md makes of the stored bytes, worked out again here, from
// the header to the last event and across forks (I11).
func TestOldLogsLink(t *testing.T) {
	t.Parallel()
	for _, dir := range directories(t) {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			records := readRecords(t, dir)
			r := sessiontest.Replay(records)
			headers := map[session.ID]string{}
			for _, raw := range records {
				if raw.Address.Class == session.ClassGenesis {
					for line := range strings.Lines(string(raw.Body)) {
						var of struct {
							Type string `json:"type"`
						}
						must(t, json.Unmarshal([]byte(line), &of))
						if of.Type == "session" {
							headers[raw.Address.Session] = strings.TrimSuffix(line, "\n")
						}
					}
				}
			}
			checked := 0
			for id := range wants(dir) {
				h := r.Chains[id].State().Header
				prev := make([]byte, 32)
				if n := h.InheritedEventCount; n > 0 {
					l, ok := r.Link(h.ParentSession)(n - 1)
					if !ok {
						t.Fatalf("%s has no link at %d", h.ParentSession, n-1)
					}
					prev = l[:]
				}
				at := linkOf("entail/header/1", prev, []byte(headers[id]))
				for _, e := range r.Events[id] {
					at = linkOf("entail/event/1", at, []byte(id), []byte(e.Class), e.Line)
					if !bytes.Equal(at, e.Link[:]) {
						t.Errorf("session %s: the link of event %d is %x, its bytes give %x", id, e.Seq, e.Link, at)
					}
					checked++
				}
			}
			if checked < 100 {
				t.Errorf("%d links checked, want at least 100", checked)
			}
		})
	}
}

// linkOf is H of docs/format.md: SHA-256 over each field as its length and its bytes.
func linkOf(domain string, fields ...[]byte) []byte {
	var b []byte
	for _, f := range append([][]byte{[]byte(domain)}, fields...) {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(f))), f...)
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// What nobody knew stands in the log as it was written, byte for byte.
func TestOldLogsKeepWhatNobodyKnew(t *testing.T) {
	t.Parallel()
	for _, dir := range directories(t) {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			events := sessiontest.Replay(readRecords(t, dir)).Events[keeper]
			for seq, form := range map[session.Seq]string{20: vendorTurn, 22: vendorPolicy} {
				if got, want := string(events[seq].Line), fmt.Sprintf(form, seq); got != want || events[seq].Payload != nil {
					t.Errorf("event %d is\n%s\nand was\n%s", seq, got, want)
				}
			}
		})
	}
}

// source is records as verify reads them.
type source []session.Raw

// Sessions implements verify.Source.
func (s source) Sessions(context.Context) ([]session.ID, error) {
	ids := map[session.ID]bool{}
	for _, r := range s {
		ids[r.Address.Session] = true
	}
	return slices.Collect(maps.Keys(ids)), nil
}

// Records implements verify.Source.
func (s source) Records(_ context.Context, id session.ID, fn func(session.Raw) error) error {
	for _, r := range s {
		if r.Address.Space() == id || r.Address.Class == session.ClassGenesis && r.Address.Session == id {
			if err := fn(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// rows gives verify what a mirror holds.
type rows struct{ *sessionstore.Store }

// Rows implements verify.Mirror.
func (r rows) Rows(_ context.Context, fn func(verify.Row) error) error {
	all, err := r.Sessions(sessionstore.ListOptions{})
	for _, e := range all {
		k := e.State.Knobs
		row := verify.Row{
			ID: e.State.Header.ID, Next: e.State.Next, Link: e.State.Link,
			Sandbox: k.Sandbox.Value, Approval: k.Approval.Value, Preset: k.Preset.Value,
		}
		if err := fn(row); err != nil {
			return err
		}
	}
	return err
}

// The invariants hold on log and mirror, but for the session that was stopped; on a
// log with one byte changed they do not.
func TestOldLogsVerify(t *testing.T) {
	t.Parallel()
	for _, dir := range directories(t) {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			records := readRecords(t, dir)
			opt := verify.Options{Mirror: rows{open(t, unpack(t, dir))}, AtRest: true}
			report, err := verify.Run(t.Context(), source(records), opt)
			must(t, err)
			for _, f := range report.Findings {
				if f.Session != broken || f.Invariant != verify.Log {
					t.Errorf("finding: %s", f)
				}
			}
			if len(report.Findings) != 1 || report.Sessions != len(wants(dir)) || report.Records != len(records) || report.Void != 2 || len(report.NotChecked) > 0 {
				t.Errorf("%+v: want %d sessions, %d records, 2 void, the one finding of %s, everything checked", report, len(wants(dir)), len(records), broken)
			}
			changed := slices.Clone(records)
			changed[0].Body = bytes.Replace(changed[0].Body, []byte("keep this"), []byte("keep that"), 1)
			report, err = verify.Run(t.Context(), source(changed), opt)
			if must(t, err); len(report.Findings) < 2 {
				t.Errorf("one word was changed and verify finds %v", report.Findings)
			}
		})
	}
}

func open(t *testing.T, dir string) *sessionstore.Store {
	t.Helper()
	s, err := sessionstore.Open(sessionstore.Config{Dir: dir})
	if err != nil {
		t.Fatalf("open the mirror: %v", err)
	}
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// held is everything that a mirror holds of a session. Of what stopped it the place
// counts; the words are each build's own.
type held struct {
	State      session.State
	Tail, Born uint64
	Voids      int
	LastTime   int64
	StoppedSeq session.Seq
	StoppedAt  uint64
	Since      []uint64
	Events     []string
	Records    []session.Raw
	Alarms     []uint64
	Children   []session.ID
	Prefix     session.Prefix
}

func heldOf(t *testing.T, s *sessionstore.Store, e sessionstore.Entry) held {
	t.Helper()
	id := e.State.Header.ID
	out := held{State: e.State, Tail: e.Tail, Born: e.Born, Voids: e.Voids, LastTime: e.LastTime}
	alarms, err := s.Alarms(id)
	must(t, err)
	for _, a := range alarms {
		out.Alarms = append(out.Alarms, a.StreamSeq)
	}
	must(t, s.Records(id, func(raw session.Raw) error {
		if raw.Body == nil {
			raw.Body = []byte{}
		}
		maps.DeleteFunc(raw.Headers, func(name, _ string) bool { return !strings.HasPrefix(name, "Entail-") })
		out.Records = append(out.Records, raw)
		return nil
	}))
	if e.Halted != nil {
		h, err := s.Halted(id)
		must(t, err)
		out.StoppedSeq, out.StoppedAt, out.Since = e.Halted.Seq, e.Halted.StreamSeq, h.Since
		return out
	}
	must(t, s.Events(id, 0, 0, func(e session.Event) error {
		out.Events = append(out.Events, fmt.Sprintf("%s %s %x %s", e.Session, e.Class, e.Link, e.Line))
		return nil
	}))
	children, err := s.Children(id)
	must(t, err)
	for _, c := range children {
		out.Children = append(out.Children, c.State.Header.ID)
	}
	out.Prefix, err = s.Prefix(id, e.State.Next)
	must(t, err)
	return out
}

// An old mirror opens, holds what a fresh one of the same records holds, and goes on
// from where it was.
func TestOldMirrorsOpen(t *testing.T) {
	t.Parallel()
	for _, dir := range directories(t) {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			records := readRecords(t, dir)
			old, fresh := open(t, unpack(t, dir)), open(t, filepath.Join(t.TempDir(), "mirror"))
			mark, ok := old.Watermark(0)
			if last := records[len(records)-1].StreamSeq; !ok || mark.Seq != last {
				t.Fatalf("the mirror is at %+v, the log at %d", mark, last)
			}
			must(t, fresh.Apply(0, mark.Incarnation, records))
			same(t, dir, old, fresh)

			next := policySwitch(t, old, keeper, mark.Seq+1)
			for _, s := range []*sessionstore.Store{old, fresh} {
				must(t, s.Apply(0, mark.Incarnation, []session.Raw{next}))
				e, err := s.Session(keeper)
				must(t, err)
				if k := e.State.Knobs.Sandbox; k.Value != session.WorkspaceWrite || e.Tail != mark.Seq+1 {
					t.Errorf("after one more record the keeper's sandbox is %+v, its tail %d", k, e.Tail)
				}
			}
			same(t, dir, old, fresh)
		})
	}
}

// A mirror that lost one record of class policy is not taken for the same.
func TestOldMirrorsCanDiffer(t *testing.T) {
	t.Parallel()
	for _, dir := range directories(t) {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			records := readRecords(t, dir)
			i := slices.IndexFunc(records, func(r session.Raw) bool { return r.Address.Class == session.ClassPolicy })
			records[i] = session.Raw{StreamSeq: records[i].StreamSeq} // stands in no log
			old, less := open(t, unpack(t, dir)), open(t, filepath.Join(t.TempDir(), "mirror"))
			must(t, less.Apply(0, "stream", records))
			a, err := old.Session(keeper)
			must(t, err)
			b, err := less.Session(keeper)
			if must(t, err); gocmp.Equal(heldOf(t, old, a), heldOf(t, less, b)) {
				t.Errorf("without record %d the mirror holds the same", i+1)
			}
		})
	}
}

// same compares all that two mirrors hold.
func same(t *testing.T, dir string, old, fresh *sessionstore.Store) {
	t.Helper()
	a, err := old.Sessions(sessionstore.ListOptions{})
	must(t, err)
	b, err := fresh.Sessions(sessionstore.ListOptions{})
	must(t, err)
	if len(a) != len(wants(dir)) || len(b) != len(a) {
		t.Fatalf("the old mirror lists %d sessions, a fresh one %d, the story has %d", len(a), len(b), len(wants(dir)))
	}
	for i := range a {
		if diff := gocmp.Diff(heldOf(t, old, a[i]), heldOf(t, fresh, b[i])); diff != "" {
			t.Errorf("session %s (-old +fresh):\n%s", a[i].State.Header.ID, diff)
		}
	}
	for what, list := range map[string]func(*sessionstore.Store) ([]session.ID, error){
		"runnable": func(s *sessionstore.Store) ([]session.ID, error) { return s.Runnable(0) },
		"owing":    func(s *sessionstore.Store) ([]session.ID, error) { return s.Owing(0) },
		"asking":   func(s *sessionstore.Store) ([]session.ID, error) { return s.Asking(0) },
	} {
		x, err := list(old)
		must(t, err)
		y, err := list(fresh)
		must(t, err)
		slices.SortFunc(x, cmp.Compare)
		slices.SortFunc(y, cmp.Compare)
		if diff := gocmp.Diff(x, y); diff != "" {
			t.Errorf("%s (-old +fresh):\n%s", what, diff)
		}
	}
}

// policySwitch is the next record of a session: a person widens its sandbox.
func policySwitch(t *testing.T, s *sessionstore.Store, id session.ID, at uint64) session.Raw {
	t.Helper()
	e, err := s.Session(id)
	must(t, err)
	own, err := session.Compose(id, session.ClassPolicy, e.State.Next, e.State.Link,
		session.Draft{Time: 1, Payload: &session.SandboxSwitch{Mode: session.WorkspaceWrite, By: &person}})
	must(t, err)
	a := session.Address{Session: id, Class: session.ClassPolicy}
	headers, body, err := session.EncodeRecord(session.Record{Address: a, Format: e.State.Format, Own: &own})
	must(t, err)
	return session.Raw{StreamSeq: at, Address: a, Headers: headers, Body: body}
}
