//go:build !mutate_owed

package stream

// countedBehind is how many messages must come after one that was read. A build
// with the tag mutate_owed takes the rule out.
func countedBehind(m message) uint64 { return m.behind }
