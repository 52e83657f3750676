package session_test

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// stopped is a root, switched to workspace-write, whose log a foreign policy
// record stopped: the stream, its replica and the good state.
func stopped(t *testing.T) (*sessiontest.Stream, *sessiontest.Replica, session.ID) {
	t.Helper()
	s := sessiontest.NewStream(t)
	root := s.Root(&session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()}, sessiontest.Model())
	bad := s.Raw(s.Compose(root, session.ClassPolicy, &session.SandboxSwitch{Mode: session.ReadOnly, By: person()}))
	bad.Body = []byte("\x00\x00")
	s.Put(bad)
	s.Write(root, session.ClassInbox, prompt("late")) // another writer had not seen the stop
	return s, sessiontest.Replay(s.Records), root
}

// release composes a release of c as it stands.
func release(t *testing.T, c *session.Chain, change func(*session.Release)) session.Raw {
	t.Helper()
	at := c.State()
	p := &session.Release{Skip: c.SinceHalt(), Seq: at.Next, Link: at.Link, Reason: "zero bytes", By: person()}
	if change != nil {
		change(p)
	}
	own, err := session.Compose(at.Header.ID, session.ClassPolicy, at.Next, at.Link, session.Draft{Payload: p})
	if err != nil {
		t.Fatal(err)
	}
	headers, raw, err := session.EncodeRecord(session.Record{Format: at.Format, Own: &own})
	if err != nil {
		t.Fatal(err)
	}
	return session.Raw{
		StreamSeq: c.Tail() + 1, Headers: headers, Body: raw,
		Address: session.Address{Session: at.Header.ID, Class: session.ClassPolicy},
	}
}

// A release always comes back read-only: what was skipped may have been a
// tightening (SPEC 1.7). A person switches the session on from there.
func TestReleaseGoesOnReadOnly(t *testing.T) {
	t.Parallel()
	_, r, root := stopped(t)
	c := r.Chains[root]
	if diff := cmp.Diff([]uint64{2, 3}, c.SinceHalt()); diff != "" {
		t.Fatalf("stream sequences from the stop on:\n%s", diff)
	}
	before := c.State()
	j, err := c.Next(release(t, c, nil))
	if err != nil || j.Ruling != session.Valid || c.Halted() != nil {
		t.Fatalf("ruling %d, %v, halted %v", j.Ruling, err, c.Halted())
	}
	after := c.State()
	if k := after.Knobs.Sandbox; k.Value != session.ReadOnly || k.Seq != before.Next || k.Source != "" {
		t.Errorf("sandbox is %+v, want read-only", k)
	}
	if len(after.Pending) != 0 {
		t.Errorf("a skipped message counts: %v", after.Pending)
	}
	if after.Next != before.Next+1 || len(c.SinceHalt()) != 0 {
		t.Errorf("next seq %d, still to skip %v", after.Next, c.SinceHalt())
	}
	s := sessiontest.NewStream(t)
	on, err := session.Compose(root, session.ClassPolicy, after.Next, after.Link, s.At(&session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()}))
	if err != nil {
		t.Fatal(err)
	}
	raw := s.Raw(session.Record{Address: session.Address{Session: root, Class: session.ClassPolicy}, Format: 1, Own: &on})
	raw.StreamSeq = c.Tail() + 1
	if j, err := c.Next(raw); err != nil || j.Ruling != session.Valid || c.State().Knobs.Sandbox.Value != session.WorkspaceWrite {
		t.Errorf("a switch after the release: ruling %d, %v", j.Ruling, err)
	}
}

func TestReleaseOfAnotherStopDoesNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*session.Release){
		"too few":     func(p *session.Release) { p.Skip = p.Skip[:1] },
		"too many":    func(p *session.Release) { p.Skip = append(p.Skip, 77) },
		"other ones":  func(p *session.Release) { p.Skip = []uint64{1, 2} },
		"other link":  func(p *session.Release) { p.Link[0] ^= 1 },
		"other place": func(p *session.Release) { p.Seq++ },
		"nobody's":    func(p *session.Release) { p.By = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, r, root := stopped(t)
			c := r.Chains[root]
			before := c.State()
			wrong := release(t, c, change)
			if j, err := c.Next(wrong); !errors.Is(err, session.ErrCorrupt) || j.Ruling != session.Skipped {
				t.Fatalf("ruling %d, %v", j.Ruling, err)
			}
			if diff := cmp.Diff(before, c.State()); diff != "" {
				t.Errorf("state moved:\n%s", diff)
			}
			// The right one names the wrong one too.
			if j, err := c.Next(release(t, c, nil)); err != nil || j.Ruling != session.Valid {
				t.Errorf("the right release: ruling %d, %v", j.Ruling, err)
			}
		})
	}
}

func TestReleaseStandsInClassPolicyOnly(t *testing.T) {
	t.Parallel()
	_, r, root := stopped(t)
	c := r.Chains[root]
	raw := release(t, c, nil)
	raw.Address.Class = session.ClassTurn
	raw.Headers["Entail-Epoch"] = "0"
	if j, err := c.Next(raw); !errors.Is(err, session.ErrCorrupt) || j.Ruling != session.Skipped {
		t.Errorf("a worker's release: ruling %d, %v", j.Ruling, err)
	}
}

// A record that is delivered again while the session is stopped is not one more
// to skip, or two readers would ask for two releases.
func TestRedeliveryWhileStopped(t *testing.T) {
	t.Parallel()
	s, r, root := stopped(t)
	c := r.Chains[root]
	for _, raw := range s.Records {
		if j, err := c.Next(raw); !errors.Is(err, session.ErrCorrupt) || j.Ruling != session.Repeated {
			t.Errorf("stream sequence %d: ruling %d, %v", raw.StreamSeq, j.Ruling, err)
		}
	}
	if diff := cmp.Diff([]uint64{2, 3}, c.SinceHalt()); diff != "" {
		t.Errorf("stream sequences to skip:\n%s", diff)
	}
}

// A mirror that starts again feeds a stopped session's records from the stop on.
func TestStoppedSessionIsResumed(t *testing.T) {
	t.Parallel()
	s, r, root := stopped(t)
	r.Resume(root, r.Chains[root].State())
	for _, raw := range s.Records[1:] {
		r.Next(raw)
	}
	c := r.Chains[root]
	if !errors.Is(c.Halted(), session.ErrCorrupt) {
		t.Fatalf("halted: %v", c.Halted())
	}
	if j, err := c.Next(release(t, c, nil)); err != nil || j.Ruling != session.Valid {
		t.Errorf("release: ruling %d, %v", j.Ruling, err)
	}
}

// A seq beyond the next behind an unexplained hole is loss, in every class; a
// hole without it is not.
func TestHoleIsLoss(t *testing.T) {
	t.Parallel()
	for _, class := range []session.Class{session.ClassTurn, session.ClassPolicy, session.ClassInbox} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			s, root := driven(t)
			seen := len(s.Records)
			s.Write(root, session.ClassInbox, prompt("lost"))
			p := map[session.Class]session.Payload{
				session.ClassTurn:   sessiontest.Allow(s.State(root), "1.1.0"),
				session.ClassPolicy: &session.SandboxSwitch{Mode: session.ReadOnly, By: person()},
				session.ClassInbox:  prompt("m2"),
			}[class]
			raw := s.Raw(s.Compose(root, class, p))
			raw.Hole = true
			c := sessiontest.Replay(s.Records[:seen]).Chains[root]
			_, err := c.Next(raw)
			var corrupt *session.CorruptError
			if !errors.As(err, &corrupt) || !corrupt.Loss || !errors.Is(err, session.ErrLoss) || !errors.Is(err, session.ErrCorrupt) {
				t.Errorf("error %v, want loss", err)
			}
			c = sessiontest.Replay(s.Records).Chains[root]
			if j, err := c.Next(raw); err != nil || j.Ruling != session.Valid {
				t.Errorf("nothing of this session was in the hole: ruling %d, %v", j.Ruling, err)
			}
		})
	}
}

// A record equal to one already read is ignored, whatever its class.
func TestRepeatedRecordIsIgnored(t *testing.T) {
	t.Parallel()
	raws, s, root := tree(t)
	for _, name := range []string{"turn", "policy", "inbox", "child"} {
		c, j, err := judge(t, s, func() session.Raw { r := raws[name]; r.StreamSeq = 0; return r }())
		if err != nil || j.Ruling != session.Repeated || c.Voids() != 0 {
			t.Errorf("%s again: ruling %d, %v", name, j.Ruling, err)
		}
		if diff := cmp.Diff(s.State(root), c.State()); diff != "" {
			t.Errorf("%s again:\n%s", name, diff)
		}
	}
	// Its bytes in another class are another record.
	other := raws["inbox"]
	other.StreamSeq, other.Address.Class = 0, session.ClassPolicy
	if _, _, err := judge(t, s, other); !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("an inbox record in class policy: %v", err)
	}
}

// A record planted before the genesis of a session whose id can be known before
// it is void in class turn, and stops the session in any other.
func TestPlantedBeforeTheGenesis(t *testing.T) {
	t.Parallel()
	for _, class := range []session.Class{session.ClassTurn, session.ClassInbox} {
		s, root := driven(t)
		child := session.ChildID(root, "1.1.1")
		own, err := session.Compose(child, class, 0, session.Link{}, s.At(&session.End{Outcome: session.OutcomeCompleted}))
		if err != nil {
			t.Fatal(err)
		}
		s.Put(s.Raw(session.Record{Address: session.Address{Session: child, Class: class}, Format: 1, Epoch: 1, Own: &own}))
		s.Delegate(root, sessiontest.Delegation{Call: "1.1.1", Kind: session.Spawn})
		r := sessiontest.Replay(s.Records)
		if diff := cmp.Diff(s.State(child), r.Chains[child].State()); diff != "" {
			t.Errorf("%s: state of the child:\n%s", class, diff)
		}
		if class != session.ClassTurn {
			if err := r.Chains[child].Halted(); !errors.Is(err, session.ErrCorrupt) || r.Chains[root].Halted() != nil {
				t.Errorf("%s: child %v, parent %v", class, err, r.Chains[root].Halted())
			}
			continue
		}
		if len(r.Alarms) != 1 || r.Alarms[0].Session != child || r.Chains[child].Tail() != 3 {
			t.Errorf("alarms %v, tail %d", r.Alarms, r.Chains[child].Tail())
		}
	}
}

// A reader that does not know a session's format refuses the session and names
// both versions.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	const newer = session.FormatVersion + 1
	isFormat := func(t *testing.T, err error) {
		t.Helper()
		var f *session.FormatError
		if !errors.As(err, &f) || !errors.Is(err, session.ErrFormat) || f.Want != newer || f.Have != session.FormatVersion {
			t.Fatalf("error %v, want a format error", err)
		}
		if !strings.Contains(err.Error(), strconv.Itoa(newer)) || !strings.Contains(err.Error(), strconv.Itoa(session.FormatVersion)) {
			t.Errorf("%q does not name both versions", err)
		}
	}
	t.Run("genesis", func(t *testing.T) {
		t.Parallel()
		s := sessiontest.NewStream(t)
		s.Root()
		raw := s.Records[0]
		raw.Headers = maps.Clone(raw.Headers)
		raw.Headers["Entail-Format"] = strconv.Itoa(newer)
		_, _, err := session.Open(raw, session.Prefix{}, nil)
		isFormat(t, err)
		if errors.Is(err, session.ErrCorrupt) {
			t.Error("a newer session is not a broken one")
		}
	})
	t.Run("raised", func(t *testing.T) {
		t.Parallel()
		s, root := driven(t)
		raw := s.Raw(s.Compose(root, session.ClassPolicy, &session.FormatRaised{FormatVersion: newer, By: person()}))
		c, _, err := judge(t, s, raw)
		isFormat(t, err)
		isFormat(t, c.Halted())
		next := s.Raw(s.Compose(root, session.ClassTurn, sessiontest.Allow(s.State(root), "1.1.0")))
		next.StreamSeq = raw.StreamSeq + 1
		j, err := c.Next(next)
		isFormat(t, err) // void would be a word about a record that it cannot read
		if j.Ruling != session.Skipped || c.Voids() != 0 {
			t.Errorf("ruling %d, voids %d", j.Ruling, c.Voids())
		}
	})
	t.Run("one policy record", func(t *testing.T) {
		t.Parallel()
		s, root := driven(t)
		raw := s.Raw(s.Compose(root, session.ClassPolicy, &session.SandboxSwitch{Mode: session.ReadOnly, By: person()}))
		raw.Headers["Entail-Format"] = strconv.Itoa(newer)
		_, _, err := judge(t, s, raw)
		isFormat(t, err)
		if !errors.Is(err, session.ErrCorrupt) {
			t.Errorf("%v: the session's format is known, the record is not of it", err)
		}
	})
}
