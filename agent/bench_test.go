package agent_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// BenchmarkColdSession reads a session of about 100 records that a turn wrote, as
// a worker does that does not hold it: in the mirror alone, from there over NATS,
// opened from there with its proof, opened from the stream; and as one does that
// still has it. Others is how many records of other sessions stand between two.
func BenchmarkColdSession(b *testing.B) {
	for _, others := range []int{0, 100} {
		b.Run("others="+strconv.Itoa(others), func(b *testing.B) { benchColdSession(b, others) })
	}
}

func benchColdSession(b *testing.B, others int) {
	b.Helper()
	w := newWorld(b)
	k := w.work("w1", 1)
	id := w.root("sessions:\n  root:\n" + steps(24) + "    - text: done\n")
	w.among(id, others)
	w.drained()
	k.die(b)
	records := w.space(id)
	if len(records) < 90 {
		b.Fatalf("%d records, want about 100", len(records))
	}
	nc := w.broker.Conn(b, broker.Worker, "w2")
	log, err := stream.New(nc, stream.Config{})
	w.must(err)
	cfg := agent.Config{Client: client.New(nc, client.Config{Worker: "w2"}), Log: log, Lease: time.Minute}
	all := agent.NewReplicas(cfg, time.Minute, 1, 1<<30)
	open := func(all agent.Replicas) {
		_, done, err := all.Open(b.Context(), id)
		w.must(err)
		done()
	}
	open(all)
	for name, read := range map[string]func(){
		"mirror": func() {
			n := 0
			w.must(w.store.RecordsAfter(id, 0, func(session.Raw) error { n++; return nil }))
			if n != len(records) {
				b.Fatalf("%d records, want %d", n, len(records))
			}
		},
		"nats": func() {
			var out client.ColdReply
			w.must(cfg.Client.Call(b.Context(), client.MethodCold, client.ColdRequest{Head: head, ID: id}, &out))
			w.must(client.Unpack(out.Records, func(session.Raw) error { return nil }))
		},
		"open-cold": func() { open(agent.NewReplicas(cfg, time.Minute, 1, 1<<30)) },
		"open-stream": func() {
			_, err := agent.OpenReplica(b.Context(), log, id, "", nil)
			w.must(err)
		},
		"open-kept": func() { open(all) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				read()
			}
		})
	}
}

// among writes so many records of other sessions behind each one of a session,
// until it is idle.
func (w *world) among(id session.ID, others int) {
	w.t.Helper()
	nc := w.broker.Conn(w.t, broker.Coordinator, "coordinator")
	last := uint64(0)
	w.until(id, "idle", func(s session.State) bool {
		tail, err := w.log.Tail(w.t.Context(), id)
		w.must(err)
		for i := range others * min(1, int(tail-last)) {
			w.must(nc.Publish("entail.log.0.other.o"+strconv.Itoa(i)+".turn", make([]byte, 500)))
		}
		last = tail
		return s.Open == nil && s.LastEnd != nil && !s.Runnable()
	})
	w.must(nc.Flush())
	info, err := w.log.Info(w.t.Context(), 0)
	w.must(err)
	w.must(w.store.WaitFor(w.t.Context(), 0, info.LastSeq))
	w.t.Logf("%d records in the stream", info.LastSeq)
}
