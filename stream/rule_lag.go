//go:build !mutate_lag

package stream

// waitsForLag is the rule that a leader may be behind for a moment. A build with the
// tag mutate_lag takes it out.
const waitsForLag = true
