//go:build mutate_verify_i5

package verify

const checkI5 = false
