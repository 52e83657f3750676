//go:build mutate_stale

package policy

const noticesChanges = false
