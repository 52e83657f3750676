package scenario_test

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// The policy of a session is events and nothing else: a genesis whose header
// carries a policy, as old ones did, is refused by its place in the stream and
// nobody drives it. The same genesis without the field is a session like any.
func TestINH26_AHeaderHoldsNoPolicy(t *testing.T) {
	t.Parallel()
	w := shared(t)
	like := w.root(twoWrites, readOnly)
	w.turns(like, 1)

	plain, _ := w.copied(like, "")
	w.turns(plain, 1)
	denied(t, w.events(plain), "1.1.0", session.ReadOnly)
	for _, field := range []string{"sandboxMode", "approvalPolicy"} {
		id, at := w.copied(like, `,"`+field+`":"danger-full-access"`)
		got := w.show(id, at)
		if got.Status != client.StatusStopped || !strings.Contains(got.Stopped, strconv.FormatUint(at, 10)) || got.Turn != 0 {
			t.Errorf("%s with %s in its header: %q, turn %d; want it stopped at %d", got.Status, field, got.Stopped, got.Turn, at)
		}
		if tail, err := w.log.Tail(t.Context(), id); err != nil || tail != at {
			t.Errorf("the tail of %s is %d (%v), its genesis stands at %d: somebody drove it", id, tail, err, at)
		}
	}
	w.absent(w.at("a.txt"))
}

// copied publishes the genesis of a root by hand under another id, with more in
// its header. All links are right. It returns the id and the stream sequence.
func (w *world) copied(like session.ID, more string) (session.ID, uint64) {
	w.t.Helper()
	raw, err := w.log.Genesis(w.t.Context(), like, like)
	w.must(err)
	id, err := session.RootID(ulid.Make().String(), 1)
	w.must(err)
	lines := bytes.Split(bytes.TrimSuffix(raw.Body, []byte("\n")), []byte("\n"))
	lines[0] = bytes.ReplaceAll(lines[0], []byte(like), []byte(id))
	lines[0] = append(bytes.TrimSuffix(lines[0], []byte("}")), more+"}"...)
	before := session.HeaderLink(session.Link{}, lines[0])
	after := before
	for _, line := range lines[1:] {
		after = session.EventLink(after, id, session.ClassGenesis, line)
	}
	msg := nats.NewMsg(stream.Subject(session.Address{Session: id, Class: session.ClassGenesis, Creator: id}))
	msg.Data = append(bytes.Join(lines, []byte("\n")), '\n')
	for k, v := range raw.Headers {
		if strings.HasPrefix(k, "Entail-") {
			msg.Header.Set(k, v)
		}
	}
	msg.Header.Set(session.HeaderLinkName, before.String()+" "+after.String())
	answer, err := w.nc.RequestMsg(msg, patience)
	w.must(err)
	var ack struct{ Seq uint64 }
	if err := json.Unmarshal(answer.Data, &ack); err != nil || ack.Seq == 0 {
		w.t.Fatalf("the broker answered %s", answer.Data)
	}
	return id, ack.Seq
}
