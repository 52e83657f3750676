//go:build mutate_verify_i6

package verify

const checkI6 = false
