//go:build mutate_identity

package policy

const captureIdentity = false
