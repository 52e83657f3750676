//go:build mutate_filter && !mutate_cas

package stream

import "github.com/entail-fleet/entail/session"

// expect names a filter that matches nothing and expects nothing under it, which
// always holds. It shows that the tests need the rule.
func expect(set func(header, value string), id session.ID, _ uint64) {
	set(headerExpectTail, "0")
	set(headerExpectFilter, "entail.lag."+string(id)+".>")
}
