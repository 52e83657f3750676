// Package stream keeps session logs as JetStream subjects. It is the only one
// that speaks JetStream: nothing outside it sees a NATS error.
//
// A deployment has one stream per partition. A session is the subjects under its
// id, and its tail is the highest stream sequence there. [Log.Append] is the one
// function that publishes records.
//
// # What the package promises
//
//   - An append is one record, and it is written only right after the tail that
//     its precondition was evaluated on. When the tail has moved, the
//     precondition is evaluated again on the new one.
//   - An append ends in one of four ways: written, refused before anything was
//     written, in conflict ([session.ErrConflict]) or lost ([session.ErrLoss]),
//     or unknown ([ErrUnknown]). An unknown outcome is never reported as a
//     failure. It was first resent, the identical record with the identical
//     expectation, for as long as [Config.Budget] says.
//   - A session's own space is taken for empty only when a read finds nothing
//     in it and a full mirror ([Witness]) agrees.
//   - One append of a session is in flight at a time. What waits behind it goes
//     into one record, in the order it came, each change with its own
//     precondition.
//   - [Log.Check] refuses a stream whose settings would break one of these.
//
// # What it does not
//
// Reads may be stale: only the compare-and-set is the check. A hint of the work
// [Queue] may come twice, late or never; the log decides. The package folds
// nothing itself: callers bring a [Viewer].
//
// # Order of events in an append
//
//	view   the session at a tail at least as new as any this process has seen
//	check  the change's precondition on that view
//	draft  its events, composed after the view's last one, folded on its state
//	send   with the view's tail as the expectation
//	settle conflict: view again; no answer: hold the view to its witnesses again if
//	       another server answers, and send the same again; else done
//
// # Example
//
//	log, err := stream.New(nc, stream.Config{Writer: me, Witness: mirror})
//	...
//	done, err := log.Append(ctx, mirror, id, stream.Change{
//		Name:  "interrupt",
//		Class: session.ClassInbox,
//		Check: func(v session.View) error { return turnIsOpen(v.State, turn) },
//		Drafts: func(session.View) ([]session.Draft, error) {
//			return []session.Draft{{Time: now, Payload: &session.Interrupt{ID: id, Turn: turn, By: by}}}, nil
//		},
//	})
package stream
