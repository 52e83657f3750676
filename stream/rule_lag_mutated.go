//go:build mutate_lag

package stream

const waitsForLag = false
