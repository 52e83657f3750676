//go:build mutate_verify_i12

package verify

const checkI12 = false
