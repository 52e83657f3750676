//go:build !mutate_verify_i2

package verify

// checkI2 is the check that a first batch stands whole in one record.
// A build with the tag mutate_verify_i2 takes it out, so that tests can show
// that they notice.
const checkI2 = true
