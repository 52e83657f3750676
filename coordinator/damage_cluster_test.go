package coordinator_test

import (
	"os"
	"slices"
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
// log is read from the others, whole. Where the stream's last record is damaged the
// session of it stops; whether the mirror stops the partition, too, depends on who
// answers it.
func TestDamageOfALeader(t *testing.T) {
	t.Parallel()
	all := []string{"quiet", "busy", "last"}
	cases := []struct {
		name  string
		place func(*site) func(damage.Record) bool
		index bool
		stop  []string // sessions that stop
		may   []string // sessions that may stop with them
	}{
		{"a session's last", quietLast, true, []string{"quiet"}, nil},
		{"in an old block, no index", old, false, all, nil},
		{"the stream's last", streamLast, true, []string{"last"}, all},
		{"a session's last in the last block, no index", busyLast, false, nil, nil},
		{"in an old block", old, true, nil, nil},
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
			lead, end := c.Leader(t, stream.StreamName(0)), s.end()
			c.Stop(t, lead)
			s.flip(c.Dir(lead), tt.place(s), damage.Body, tt.index)
			c.Start(t, lead)
			c.Reach(t, stream.StreamName(0), lead, end)
			c.Lead(t, stream.StreamName(0), lead)
			s.coordinate(s.mirror())
			for _, name := range all {
				switch {
				case slices.Contains(tt.stop, name):
					s.stopped(name)
				case slices.Contains(tt.may, name):
					s.stoppedOrGoesOn(name)
				default:
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
