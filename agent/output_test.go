package agent_test

import (
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
)

// TestLargestOutputFitsARecord has a command fill both streams with the bytes that
// take the most room in a log, and another call of the turn look for the whole.
func TestLargestOutputFitsARecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: bash, args: {command: 'head -c 200000 /dev/zero | tr "\0" "\001" | tee /dev/stderr'}}]
    - calls: [{id: b, tool: bash, args: {command: 'cat $TMPDIR/output-*.txt | wc -c'}}]
    - text: done
`)
	s := w.idle(id)
	if s.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("the turn ended %q, want %q", s.LastEnd.Reason.Kind, session.EndCompleted)
	}
	events := w.open(id).Events()
	if r := resultOf(t, events, "1.1.0"); r.IsError || strings.Count(r.Content, " bytes left out; the whole is in ") != 2 {
		t.Errorf("error %v, code %q, %d bytes: want both streams, shown in part", r.IsError, r.Code, len(r.Content))
	}
	if r := resultOf(t, events, "1.2.0"); r.Content != "400000\n" {
		t.Errorf("the next call found %q, want all 400000 bytes", r.Content)
	}
}
