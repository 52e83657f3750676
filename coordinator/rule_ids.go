//go:build !mutate_ids

package coordinator

// idsTaken is the rule that an id stands for one request (SPEC 1.10, 7.2). A build with
// the tag mutate_ids takes it out, so that tests can show that they notice.
const idsTaken = true
