//go:build mutate_verify_i2

package verify

const checkI2 = false
