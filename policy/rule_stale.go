//go:build !mutate_stale

package policy

// noticesChanges is the rule that an answer counts only while the policy is the one that
// its question was asked under. A build with the tag mutate_stale takes it out, so that
// tests can show that they notice.
const noticesChanges = true
