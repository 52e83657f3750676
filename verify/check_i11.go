//go:build !mutate_verify_i11

package verify

// checkI11 is the check that hash links hold from first to last, across forks.
// A build with the tag mutate_verify_i11 takes it out, so that tests can show
// that they notice.
const checkI11 = true
