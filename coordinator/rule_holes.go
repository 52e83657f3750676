//go:build !mutate_holes

package coordinator

// seesHoles is the rule that a stream with a hole, or with an end that cannot be
// read, has lost records. A build with the tag mutate_holes takes it out.
const seesHoles = true
