//go:build !mutate_verify_i7

package verify

// checkI7 is the check that every message is consumed once or cancelled by name.
// A build with the tag mutate_verify_i7 takes it out, so that tests can show
// that they notice.
const checkI7 = true
