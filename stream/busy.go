//go:build !mutate_10164

package stream

// inFlight is the outcome of a publish that met another one with the same filter
// in flight (10164): nothing is written, and nothing is said of the tail.
const inFlight = busy
