//go:build linux && (amd64 || arm64) && !mutate_held

package sandbox

// sparesHeld is the rule that a temp directory that somebody holds is in use and is
// not removed. A build with the tag mutate_held takes it out.
const sparesHeld = true
