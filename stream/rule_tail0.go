//go:build !mutate_tail0

package stream

// doubtsEmpty is the rule that tail 0 is believed only twice over. A build with the
// tag mutate_tail0 takes it out.
const doubtsEmpty = true
