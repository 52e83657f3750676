//go:build mutate_filter_mixed && !mutate_cas && !mutate_filter

package stream

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/entail-fleet/entail/session"
)

// published counts the publishes of this process.
var published atomic.Uint64

// expect names, at every second publish, another filter that matches the very
// same subjects. One server compares what it matches; three hold only what is the
// same string apart from what is in flight. It shows that the tests need the rule.
func expect(set func(header, value string), id session.ID, tail uint64) {
	filter := TailFilter(id)
	if published.Add(1)%2 == 0 {
		filter = strings.Replace(filter, "."+string(id.Root())+".", ".*.", 1)
	}
	set(headerExpectTail, strconv.FormatUint(tail, 10))
	set(headerExpectFilter, filter)
}
