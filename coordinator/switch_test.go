package coordinator_test

import (
	"testing"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// One person after the other switches back what the one before switched, each
// known to no coordinator. Every switch changes something, so each is written,
// whichever coordinator takes it and however far its mirror has come.
func TestSPEC3_1_ASwitchIsNotTakenForDoneByAnOldMirror(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2)
	root := d.root()
	nc := d.broker.Conn(t, broker.Client, "client")
	for i := range 100 {
		mode := session.SandboxModes()[i%2]
		var out client.PolicyReply
		someone := client.New(nc, client.Config{Token: adminToken})
		d.must(someone.Call(t.Context(), client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: root, Sandbox: mode}, &out))
		if out.Events != 1 {
			t.Fatalf("switch %d, to %s, wrote %d events", i, mode, out.Events)
		}
	}
}
