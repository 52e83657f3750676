//go:build !mutate_verify_i5

package verify

// checkI5 is the check that no result tells of an effect wider than its decision.
// A build with the tag mutate_verify_i5 takes it out, so that tests can show
// that they notice.
const checkI5 = true
