//go:build mutate_verify_i11

package verify

const checkI11 = false
