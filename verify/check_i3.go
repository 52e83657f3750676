//go:build !mutate_verify_i3

package verify

// checkI3 is the check that an allowed delegating call has exactly one child.
// A build with the tag mutate_verify_i3 takes it out, so that tests can show
// that they notice.
const checkI3 = true
