//go:build mutate_seen

package stream

func shortened(uint64, uint64) bool { return false }
