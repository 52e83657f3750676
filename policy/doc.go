// Package policy decides, without side effects, whether a tool call may run, and
// what a child inherits.
//
// Three knobs (SPEC 2) fold from a session's log: the sandbox mode, the approval
// policy and the preset identity. For each, effective = one-shot grant ??
// override ?? default. The overrides come from [session.State]; the defaults
// come from the deployment and are live: they are in [Deployment], with the
// revision they were read at, and are never copied into a log.
//
//   - [Current] names the preset a session is under (SPEC 2.3).
//   - [Select], [SwitchSandbox] and [SwitchApproval] say which events a person's
//     wish appends (SPEC 2.4, 4.10).
//   - [Capture] says what a delegation hands down (SPEC 4.2, 4.11).
//   - [Decide] returns a sealed [Decision] of one call: a [Permit], a [Denial] or
//     a [Question] (SPEC 5). A permit's fields are out of reach, so nothing but
//     Decide can make one.
//   - [Explain] tells where each value came from, up the tree.
//
// Everything here is pure: no I/O, no clock, no goroutine. The same inputs give
// the same answer on every worker and coordinator, which is why a coordinator
// can decide a delegation again at the worker's tail and must agree.
package policy
