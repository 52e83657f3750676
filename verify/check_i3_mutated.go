//go:build mutate_verify_i3

package verify

const checkI3 = false
