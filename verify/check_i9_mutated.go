//go:build mutate_verify_i9

package verify

const checkI9 = false
