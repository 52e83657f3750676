//go:build !mutate_pin

package policy

// pinApprovals is the rule that a child's approvals are pinned. A build with the
// tag mutate_pin takes it out, so that tests can show that they notice.
const pinApprovals = true
