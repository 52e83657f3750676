//go:build mutate_verify_i7

package verify

const checkI7 = false
