//go:build !mutate_capture

package policy

// captureOverride is the rule that the parent's explicit sandbox mode is handed down. A build with the
// tag mutate_capture takes it out, so that tests can show that they notice.
const captureOverride = true
