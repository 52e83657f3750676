// Package agent drives turns: it asks a model, decides each call, runs what is
// allowed behind the fence, and writes every one of these facts to the session's
// log before it acts on it.
//
// # What it is
//
// A turn is a state machine over the log. [Next] looks at what a log folds to
// and says what is to be done; a driver does it and looks again. Nothing that
// matters is kept anywhere else, so any worker goes on where another one died.
// [Replica] is one session's log in memory, [Worker] takes hints from the work queue
// and drives the sessions they name.
//
// A worker keeps the logs it worked on for a lease and reads on from there, at most
// 256 of them in 64 MiB beside those that it works on; what ended is forgotten at
// once. A long log that it does not have it reads from a coordinator's mirror.
//
// # What the package promises
//
//   - Every call is decided, by compare-and-set on the tail that was folded,
//     before it has any effect, and decided again when something slipped in
//     (SPEC 5.1). An allowed call's only way to an effect is its permit.
//   - A call that was allowed and has no result when another driver takes over is
//     not run again unless it only reads: its outcome is unknown and the log says
//     so (SPEC 5.9). A delegating call finds its child by its id.
//   - A turn that waits for a child is parked in the log and holds no worker.
//   - A hint is acknowledged on a stable fact only (ARCHITECTURE 4): a stale fold
//     can delay an acknowledgement, never lose a message.
//   - A log that was kept, or given by a coordinator, is believed when a record
//     that JetStream gives links to it, and not before. One that the stream
//     contradicts is a loss, and its session is refused.
//   - A foreign claim, an interrupt, a cancel or the end of the lease ends what
//     runs.
//
// # What it does not
//
// It decides nothing itself: that is package policy. It confines nothing: that is
// package sandbox. It starts no child: a coordinator does, in one record. What it
// writes is of class turn alone.
//
// # Order of events in a turn
//
//	claim, turn/start, agent/inbox/consumed
//	runtime context, step/start, request/header
//	assistant/message with its calls
//	decisions, then the calls run, then each result
//	step/end; the next step, or turn/end
package agent
