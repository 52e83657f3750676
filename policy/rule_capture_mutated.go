//go:build mutate_capture

package policy

const captureOverride = false
