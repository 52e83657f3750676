package session_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// A record has at most 768 KiB, checked before anything is written and again by
// every reader (ARCHITECTURE 3).
func TestRecordOverTheLimit(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	root := s.Root()
	m := prompt("m1")
	empty := len(s.Raw(s.Compose(root, session.ClassInbox, m)).Body)
	m.Content += strings.Repeat("x", session.MaxRecord-empty)
	fits := s.Raw(s.Compose(root, session.ClassInbox, m))
	if len(fits.Body) != session.MaxRecord {
		t.Fatalf("the body has %d bytes", len(fits.Body))
	}
	if _, j, err := judge(t, s, fits); err != nil || j.Ruling != session.Valid {
		t.Errorf("at the limit: ruling %d, %v", j.Ruling, err)
	}
	m.Content += "x"
	over := s.Compose(root, session.ClassInbox, m)
	if _, _, err := session.EncodeRecord(over); !errors.Is(err, session.ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	fits.Body = append(fits.Body, '\n')
	if _, err := session.DecodeRecord(fits); !errors.Is(err, session.ErrTooLarge) {
		t.Errorf("read over the limit: %v", err)
	}
}

// SPEC 2: read-only < workspace-write < danger-full-access. What is outside is
// wider than nothing, and nothing is wider than it.
func TestModesAreOrdered(t *testing.T) {
	t.Parallel()
	modes := []session.SandboxMode{"read-only", "workspace-write", "danger-full-access"}
	for i, a := range modes {
		for k, b := range modes {
			if got := a.Wider(b); got != (i > k) {
				t.Errorf("%s wider than %s: %t", a, b, got)
			}
		}
		for _, foreign := range []session.SandboxMode{"", "yolo", "Read-Only"} {
			if foreign.Valid() || foreign.Wider(a) || a.Wider(foreign) {
				t.Errorf("%q is compared with %s", foreign, a)
			}
		}
	}
}

// An error shows bad input without letting it fill a screen or drive a terminal.
func TestErrorsAreShortAndPrintable(t *testing.T) {
	t.Parallel()
	_, err := session.DecodeEvent([]byte("\x1b[2J" + strings.Repeat("x", 100_000)))
	if err == nil || len(err.Error()) > 400 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("error has %d bytes", len(err.Error()))
	}
	s := sessiontest.NewStream(t)
	root := s.Root()
	raw := s.Raw(s.Compose(root, session.ClassTurn, claim(1, session.CauseStart)))
	raw.Body = []byte(`{"type":"` + "\\u001b[2J" + `"}` + "\n")
	_, j, err := judge(t, s, raw)
	if err != nil || j.Alarm == nil || strings.Contains(j.Alarm.String(), "\x1b") {
		t.Errorf("alarm %v, %v", j.Alarm, err)
	}
}

// The way out stands where a user sees the trouble.
func TestErrorsNameTheWayOut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want []string
	}{
		{
			&session.CorruptError{Session: rootID, Seq: 4, StreamSeq: 9, Reason: errors.New("zero bytes")},
			[]string{string(rootID), "seq 4", "stream sequence 9", "zero bytes", "entail session release"},
		},
		{&session.FormatError{Session: rootID, Have: 1, Want: 3}, []string{string(rootID), "format 3", "up to 1", "newer build"}},
		{&session.ConflictError{Session: rootID, Want: 7, Tail: 8}, []string{string(rootID), "7", "8"}},
	} {
		for _, want := range tt.want {
			if !strings.Contains(tt.err.Error(), want) {
				t.Errorf("%q does not name %s", tt.err, want)
			}
		}
	}
	if !errors.Is(&session.ConflictError{}, session.ErrConflict) || errors.Is(&session.CorruptError{}, session.ErrLoss) {
		t.Error("an error is not what it says")
	}
}
