//go:build !mutate_clothes

package agent

// seesThrough is the rule that a refused call that is written in another way is the
// same call (SPEC 5.8). A build with the tag mutate_clothes takes it out.
const seesThrough = true
