// Package session holds the nouns of a session log and the pure function that
// folds it.
//
// # What a log is
//
// A session is one agent conversation. Its log is a sequence of events, each at
// a [Seq] that starts at 0 and has no gaps. Events travel in records: 1..n
// consecutive events of one session and one [Class], visible whole or not at
// all. The genesis of a child is the one record with two sections: the decision
// of the parent's delegating call, and the child's header and first batch
// (SPEC 4.4).
//
// # What the package promises
//
//   - One form. [Encode] writes a line in exactly one way and [DecodeEvent]
//     accepts exactly that way, so two readers can never understand one line
//     differently: a key twice, a key in another case, an unknown key or a
//     trailing byte is refused.
//   - One chain. [Chain.Next] judges raw records one after the other by the
//     rules of SPEC 1.4 and every reader that sees the same records finds the
//     same log. An invalid record of class turn is void and changes nothing; an
//     invalid record of any other class stops the session.
//   - One state. [Fold] is total and pure: fold(all) = fold(snapshot + tail),
//     for any split into records and any redelivery. [State] is what it folds
//     to; it is small, and the policy in it is found in O(1).
//   - Closed vocabularies are checked when an event is made and when it is read,
//     also when a later event would shadow the bad one (SPEC 1.5).
//
// # What it does not
//
// It does no I/O, reads no clock and starts no goroutine. It knows nothing of
// NATS, Pebble or the deployment: defaults and presets are package policy's.
// It decides nothing; it only says what a log means.
//
// The catalogue of events is [Catalogue]; docs/format.md is generated from it.
package session
