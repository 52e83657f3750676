//go:build !mutate_verify_i6

package verify

// checkI6 is the check that a grant is used once, by the call it names.
// A build with the tag mutate_verify_i6 takes it out, so that tests can show
// that they notice.
const checkI6 = true
