package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// cold reads a session's records as a worker does and counts the replies.
func (d *deployment) cold(id session.ID, after uint64) (records []session.Raw, replies int) {
	d.t.Helper()
	for {
		var out client.ColdReply
		d.must(d.worker.Call(d.t.Context(), client.MethodCold, client.ColdRequest{Head: head, ID: id, After: after}, &out))
		replies++
		d.must(client.Unpack(out.Records, func(r session.Raw) error {
			records, after = append(records, r), r.StreamSeq
			return nil
		}))
		if !out.More {
			return records, replies
		}
	}
}

// own leaves of a record's headers those that a worker is given.
func own(records []session.Raw) []session.Raw {
	for _, r := range records {
		for name := range r.Headers {
			if !strings.HasPrefix(name, "Entail-") {
				delete(r.Headers, name)
			}
		}
	}
	return records
}

// A worker is given what the stream holds of a session, from any record on, in as
// many replies as that takes.
func TestColdGivesWhatTheStreamHolds(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, func(s *policy.Settings) { s.Lease = policy.Duration(time.Minute) }) // no sweep adds to it
	root := d.root()
	for range 4 {
		d.must(d.api.Call(t.Context(), client.MethodSend, client.SendRequest{
			Head: head, ID: root, MessageID: ulid.Make().String(), Content: strings.Repeat("x", 300<<10),
		}, nil))
	}
	d.catchUp()
	var want []session.Raw
	_, err := d.log.Read(t.Context(), root, 0, func(r session.Raw) error { want = append(want, r); return nil })
	d.must(err)
	got, replies := d.cold(root, 0)
	if diff := cmp.Diff(own(want), got); diff != "" || len(got) != 5 || replies < 2 {
		t.Errorf("%d records in %d replies, want 5 in several (-stream +cold)\n%s", len(got), replies, diff)
	}
	if got, _ := d.cold(root, want[2].StreamSeq); len(got) != 2 || got[0].StreamSeq != want[3].StreamSeq {
		t.Errorf("%d records after the third, want the two last", len(got))
	}
	if got, replies := d.cold(root, want[4].StreamSeq); len(got) != 0 || replies != 1 {
		t.Errorf("%d records after the last, want none", len(got))
	}
}

// A child's genesis, which stands in its parent's space, comes first.
func TestColdBeginsWithAChildsGenesis(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	parent := d.root()
	d.claim(parent)
	child := d.spawn(parent)
	d.catchUp()
	got, _ := d.cold(child, 0)
	if len(got) != 1 || got[0].Address.Session != child || got[0].Address.Space() != parent {
		t.Errorf("cold child %+v, want its genesis in the space of %s", got, parent)
	}
}

func TestColdRefusesWhatIsNotThere(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	for id, want := range map[session.ID]client.Code{newRoot(t): client.CodeNotFound, "no such": client.CodeInvalid} {
		err := d.worker.Call(t.Context(), client.MethodCold, client.ColdRequest{Head: head, ID: id}, nil)
		if client.CodeOf(err) != want {
			t.Errorf("cold %q: %v, want %s", id, err, want)
		}
	}
}
