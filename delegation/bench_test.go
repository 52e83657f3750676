package delegation_test

import (
	"testing"

	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// BenchmarkChild is the whole composition of a delegation, without its append.
func BenchmarkChild(b *testing.B) {
	s := sessiontest.NewStream(b)
	p := &parent{Stream: s, id: s.Root()}
	p.turn(1)
	state := p.State(p.id)
	r := request()
	wish := r.Wish()
	d, err := policy.Decide(state, deployed(), policy.Call{ID: "1.1.0", Tool: "delegate", Effect: true, Wish: &wish}, tools)
	if err != nil {
		b.Fatal(err)
	}
	o := delegation.Order{CallID: "1.1.0", Request: r, Decision: d.Record(), Epoch: state.Epoch, Time: 9, Tools: tools}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := o.Child(session.View{State: state, Tail: 1}, deployed()); err != nil {
			b.Fatal(err)
		}
	}
}
