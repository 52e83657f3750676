//go:build mutate_10164

package stream

// inFlight ignores that 10164 is an error. It shows that the tests need the rule.
const inFlight = stored
