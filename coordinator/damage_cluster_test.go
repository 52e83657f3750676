package coordinator_test

import (
	"os"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/damage"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/stream"
)

// TestDamageOfALeader turns over one bit in the store of one of three servers, makes
// that one the leader, and asks for appends. With CHAOS_SECONDS set it does so in
// more places.
//
// What the others hold is not lost. A server that finds its store cut off at the end
// has it from them before it leads. One with a hole leads on, and the partition
// stops. What the leader alone cannot read, and is not asked for, stops nobody: the
// log is read from the others, whole.
func TestDamageOfALeader(t *testing.T) {
	t.Parallel()
	const partition = "partition"
	cases := []struct {
		name  string
		place func(*site) func(damage.Record) bool
		index bool
		stops string
	}{
		{"a session's last", quietLast, true, "quiet"},
		{"in an old block, no index", old, false, partition},
		{"the stream's last", streamLast, true, partition},
		{"a session's last in the last block, no index", busyLast, false, ""},
		{"in an old block", old, true, ""},
	}
	if os.Getenv("CHAOS_SECONDS") == "" {
		cases = cases[:1]
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := natstest.StartClusterConfig(t, natstest.ClusterConfig{Partitions: 2})
			s := &site{t: t, dir: t.TempDir()}
			s.conn = func(role broker.Role, name string) *nats.Conn { return c.Conn(t, role, name) }
			s.fill(natstest.Nodes)
			lead := c.Leader(t, stream.StreamName(0))
			c.Stop(t, lead)
			s.flip(c.Dir(lead), tt.place(s), damage.Body, tt.index)
			c.Start(t, lead)
			for range 30 {
				if c.Leader(t, stream.StreamName(0)) == lead {
					break
				}
				c.StepDown(t, stream.StreamName(0))
			}
			if now := c.Leader(t, stream.StreamName(0)); now != lead {
				t.Fatalf("server %d leads, want the damaged %d", now, lead)
			}
			s.coordinate(s.mirror())
			for _, name := range []string{"quiet", "busy", "last"} {
				if tt.stops == partition || tt.stops == name {
					s.stopped(name)
				} else {
					s.goesOn(name)
				}
			}
			s.goesOn("other")
			if now := c.Leader(t, stream.StreamName(0)); now != lead {
				t.Errorf("server %d leads at the end, want the damaged %d", now, lead)
			}
		})
	}
}
