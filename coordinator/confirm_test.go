package coordinator_test

import (
	"encoding/json"
	"testing"

	"github.com/entail-fleet/entail/client"
)

// Who changes a default waits for every live worker, also for one that has been
// listed a moment ago: it may have read the default before it changed (SPEC 2.1).
func TestSPEC2_1_AWorkerThatHasJustBegunIsWaitedFor(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	for _, mode := range []string{`"workspace-write"`, `"read-only"`} {
		value, err := json.Marshal(client.Alive{Worker: "w1", Incarnation: "i1", Claims: []client.AliveClaim{}})
		d.must(err)
		d.must(d.log.Liveness().Put(t.Context(), "w1", value))
		var reply client.ConfigReply
		d.must(d.api.Call(t.Context(), client.MethodConfigSet, client.ConfigSetRequest{Head: head, Path: "defaults.sandbox", Value: []byte(mode)}, &reply))
		alive, err := d.log.Liveness().All(t.Context())
		d.must(err)
		if len(alive) != 0 && len(reply.Stragglers) == 0 {
			t.Errorf("the change to %s was confirmed while w1, which never confirmed it, was alive", mode)
		}
	}
}
