//go:build mutate_10164

package stream

// busyTries gives up at once. It shows that the tests need the rule.
const busyTries = 0
