//go:build mutate_verify_i4

package verify

const checkI4 = false
