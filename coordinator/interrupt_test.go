package coordinator_test

import (
	"testing"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
)

// An interrupt of a turn that was just opened finds it, whichever coordinator is asked
// and however far its mirror is: that nothing is open is not believed of a mirror that
// has not read all (SPEC 7.4).
func TestSPEC7_4_AnInterruptFindsATurnThatIsNew(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, func(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) })
	const rounds = 40
	for i := range rounds {
		id := d.root()
		d.claim(id)
		var out client.StopReply
		d.must(d.api.Call(t.Context(), client.MethodInterrupt, client.StopRequest{Head: head, ID: id, RequestID: "r"}, &out))
		if out.Turn != 1 || out.Note != "" {
			t.Fatalf("round %d: the interrupt came to %+v", i, out)
		}
	}
}
