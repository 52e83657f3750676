//go:build mutate_cas

package stream

import (
	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/session"
)

// setExpectation expects nothing. It shows that the tests need the rule.
func setExpectation(nats.Header, session.ID, uint64) {}
