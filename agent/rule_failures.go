//go:build !mutate_failures

package agent

// sparesFailures is the rule that a call which failed was not refused (SPEC 5.8). A
// build with the tag mutate_failures takes it out.
const sparesFailures = true
