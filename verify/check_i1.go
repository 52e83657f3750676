//go:build !mutate_verify_i1

package verify

// checkI1 is the check that a child starts with exactly the policy that its parent's log gives.
// A build with the tag mutate_verify_i1 takes it out, so that tests can show
// that they notice.
const checkI1 = true
