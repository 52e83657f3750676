package stream_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// ARCHITECTURE 2 and 3 give the subjects.
func TestSubject(t *testing.T) {
	t.Parallel()
	const (
		root  = session.ID("0001k9z3x5q8r7m6n4p2v0w1y3z5")
		child = root + "-0123456789abcdefghjkmnpqrs"
		other = session.ID("1f01k9z3x5q8r7m6n4p2v0w1y3z6")
	)
	tests := map[string]struct {
		address session.Address
		want    string
	}{
		"turn of a root":       {session.Address{Session: root, Class: session.ClassTurn}, "entail.log.0." + string(root+"."+root) + ".turn"},
		"inbox of a child":     {session.Address{Session: child, Class: session.ClassInbox}, "entail.log.0." + string(root+"."+child) + ".inbox"},
		"partition 31":         {session.Address{Session: other, Class: session.ClassPolicy}, "entail.log.31." + string(other+"."+other) + ".policy"},
		"genesis of a root":    {session.Address{Session: root, Class: session.ClassGenesis, Creator: root}, "entail.log.0." + string(root+"."+root) + ".genesis." + string(root)},
		"genesis of a child":   {session.Address{Session: child, Class: session.ClassGenesis, Creator: root}, "entail.log.0." + string(root+"."+root) + ".genesis." + string(child)},
		"genesis of a sibling": {session.Address{Session: root, Class: session.ClassGenesis, Creator: child}, "entail.log.0." + string(root+"."+child) + ".genesis." + string(root)},
		"seed":                 {session.Address{Session: root, Class: session.ClassSeed}, "entail.log.0." + string(root+"."+root) + ".seed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := stream.Subject(tt.address); got != tt.want {
				t.Errorf("Subject(%v) = %s, want %s", tt.address, got, tt.want)
			}
			got, err := stream.ParseSubject(tt.want)
			if diff := cmp.Diff(tt.address, got); err != nil || diff != "" {
				t.Errorf("ParseSubject(%s): %v (-want +got)\n%s", tt.want, err, diff)
			}
			if f := stream.TailFilter(tt.address.Space()); !strings.HasPrefix(tt.want, strings.TrimSuffix(f, ">")) {
				t.Errorf("TailFilter(%s) = %s does not match %s", tt.address.Space(), f, tt.want)
			}
		})
	}
}

func TestParseSubjectRefuses(t *testing.T) {
	t.Parallel()
	const root = "0001k9z3x5q8r7m6n4p2v0w1y3z5"
	for _, s := range []string{
		"", "entail", "entail.log.0." + root, "entail.log.0." + root + "." + root,
		"entail.log.1." + root + "." + root + ".turn",                 // another partition
		"entail.log.0.0001k9z3x5q8r7m6n4p2v0w1y3z6." + root + ".turn", // another root
		"entail.log.0." + root + "." + root + ".turn.x",
		"entail.log.0." + root + "." + root + ".genesis",
		"entail.log.0." + root + "." + root + ".genesis.x",
		"entail.log.0." + root + "." + root + ".genesis.0001k9z3x5q8r7m6n4p2v0w1y3z6",
		"entail.log.0." + root + "." + root + ".other",
		"entail.log.00." + root + "." + root + ".turn",
		"entail.lag.0." + root + "." + root + ".turn",
		"$KV.ENTAIL_SETTINGS.deployment",
	} {
		if a, err := stream.ParseSubject(s); err == nil {
			t.Errorf("ParseSubject(%q) = %v, want an error", s, a)
		}
	}
}

// A wrong filter of the compare-and-set lets everything pass, so what goes over
// the wire is looked at.
func TestExpectationOnTheWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	var sent []*nats.Msg
	l.Intercept(func(next stream.Publish) stream.Publish { return record(&sent, next) })
	for _, n := range []string{"a", "b"} {
		if _, err := l.Append(t.Context(), v, id, nudge(n)); err != nil {
			t.Fatal(err)
		}
	}
	stored := records(t, l, id)
	for i, m := range sent {
		tail := stored[i].StreamSeq
		want := map[string]string{
			"Nats-Expected-Last-Subject-Sequence":         decimal(tail),
			"Nats-Expected-Last-Subject-Sequence-Subject": "entail.log.0." + string(id+"."+id) + ".>",
		}
		got := map[string]string{}
		for k, v := range m.Header {
			if strings.HasPrefix(k, "Nats-") {
				got[k] = strings.Join(v, "|")
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("headers of record %d (-want +got):\n%s", i, diff)
		}
	}
}

// The control of the test above: this is what a typo in the filter costs.
func TestServerTakesAnyFilter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	for _, filter := range []string{"entail.lag.>", "entail.log..>", stream.TailFilter(rootID(t, 2))} {
		m := nats.NewMsg(stream.Subject(session.Address{Session: id, Class: session.ClassTurn}))
		m.Header["Nats-Expected-Last-Subject-Sequence"] = []string{"0"}
		m.Header["Nats-Expected-Last-Subject-Sequence-Subject"] = []string{filter}
		if _, err := w.js(t).PublishMsg(t.Context(), m); err != nil {
			t.Errorf("filter %q: %v, want the record stored", filter, err)
		}
	}
}
