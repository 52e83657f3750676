//go:build !mutate_verify_i4

package verify

// checkI4 is the check that an effect follows a committed decision on the log right before it.
// A build with the tag mutate_verify_i4 takes it out, so that tests can show
// that they notice.
const checkI4 = true
