//go:build !mutate_cas && !mutate_filter && !mutate_filter_mixed

package stream

import (
	"strconv"

	"github.com/entail-fleet/entail/session"
)

// expect makes a publish conditional on the tail of a session. Both headers are
// always there: without the first the second is refused, without the second the
// first speaks of one subject alone.
func expect(set func(header, value string), id session.ID, tail uint64) {
	set(headerExpectTail, strconv.FormatUint(tail, 10))
	set(headerExpectFilter, TailFilter(id))
}
