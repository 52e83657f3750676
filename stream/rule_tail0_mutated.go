//go:build mutate_tail0

package stream

const doubtsEmpty = false
