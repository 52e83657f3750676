//go:build !mutate_10164

package stream

// busyTries is how often a publish is repeated that met another one with the
// same filter in flight, before it counts as a conflict.
const busyTries = 50
