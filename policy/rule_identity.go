//go:build !mutate_identity

package policy

// captureIdentity is the rule that the identities auto and danger-full-access are handed down. A build with the
// tag mutate_identity takes it out, so that tests can show that they notice.
const captureIdentity = true
