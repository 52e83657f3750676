//go:build !mutate_verify_i12

package verify

// checkI12 is the check that no delegation widens what an ancestor's log allows.
// A build with the tag mutate_verify_i12 takes it out, so that tests can show
// that they notice.
const checkI12 = true
