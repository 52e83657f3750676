//go:build !mutate_again

package stream

// believesAgain is the rule that a view is believed anew before its record is sent
// again. A build with the tag mutate_again takes it out.
const believesAgain = true
