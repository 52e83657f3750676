//go:build !mutate_cas && !mutate_filter

package stream

import (
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/session"
)

// setExpectation makes a publish conditional on the tail of a session. Both
// headers are always there: without the first the second is refused, without the
// second the first speaks of one subject alone.
func setExpectation(h nats.Header, id session.ID, tail uint64) {
	h[headerExpectTail] = []string{strconv.FormatUint(tail, 10)}
	h[headerExpectFilter] = []string{TailFilter(id)}
}
