//go:build mutate_filter && !mutate_cas

package stream

import (
	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/session"
)

// setExpectation names a filter that matches nothing and expects nothing under
// it, which always holds. It shows that the tests need the rule.
func setExpectation(h nats.Header, id session.ID, _ uint64) {
	h[headerExpectTail] = []string{"0"}
	h[headerExpectFilter] = []string{"entail.lag." + string(id) + ".>"}
}
