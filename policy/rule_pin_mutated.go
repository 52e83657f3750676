//go:build mutate_pin

package policy

const pinApprovals = false
