//go:build !mutate_rerun

package agent

// runsAgain is whether calls are run again that may have had an effect: never (SPEC 5.9).
// A build with the tag mutate_rerun takes the rule out, so that tests can show that they
// notice.
const runsAgain = false
