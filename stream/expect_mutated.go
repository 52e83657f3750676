//go:build mutate_cas

package stream

import "github.com/entail-fleet/entail/session"

// expect expects nothing. It shows that the tests need the rule.
func expect(func(header, value string), session.ID, uint64) {}
