// Package races says what a session's switches, decisions and delegations come to
// when they are raced, and its tests race them: people who switch a parent's
// policy, workers that decide its calls and delegate from it, two coordinators,
// and a broker whose leader changes. Each operation is timed, what it wrote is
// read back from the raw stream, and porcupine looks for an order that fits both.
//
//	Input    what a caller asked for
//	Output   how it ended, and what stands in the stream of it
//	State    a session as far as these operations read or change it
//	Spec     the order's rules: what an operation does to a state, written from
//	         the specification and not from package policy
//
// An output names the seq that its record has, so an order that fits is the
// log's own. Every operation writes at the seq right after what it was decided
// on, none is answered for before it stands there, and none that was refused
// stands there at all: this is more than linearizable values.
//
// # Not promised
//
// Only what a root does under a fixed set of defaults is raced: one driver's
// epoch, one step, no reviewer, nobody to ask.
//
// # Example
//
//	spec := races.Spec{Live: 6, Sandbox: session.ReadOnly, Approval: session.Ask}
//	result, info := porcupine.CheckOperationsVerbose(spec.Model(), history, time.Minute)
package races
