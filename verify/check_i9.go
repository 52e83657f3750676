//go:build !mutate_verify_i9

package verify

// checkI9 is the check that a mirror holds prefixes and folds them right.
// A build with the tag mutate_verify_i9 takes it out, so that tests can show
// that they notice.
const checkI9 = true
