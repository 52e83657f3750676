//go:build mutate_verify_i1

package verify

const checkI1 = false
