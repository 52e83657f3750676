//go:build mutate_again

package stream

const believesAgain = false
