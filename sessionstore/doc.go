// Package sessionstore is the full mirror of the partitions, kept in Pebble: it
// answers what the stream answers slowly or not at all.
//
// # What it is
//
// [Store.Run] feeds the store with the raw records of one partition, in stream
// order. Each record is judged by a [session.Chain] and kept: of each session
// the folded state with its tail, all own events, all raw records of its space
// (void ones too), the ids of accepted messages, alarms, and the indexes for
// trees, children, runnable sessions and those that ask.
//
// # What it promises
//
//   - What is held of a partition is a prefix of its stream. A batch and the
//     watermark that names its last record are one Pebble batch, so a crash
//     leaves a shorter prefix and never a torn one; the feed goes on behind the
//     watermark and nothing is judged or alarmed twice.
//   - The state of a session is the fold of exactly the events held of it, and
//     the policy in it is found without reading one of them.
//   - Loss is never overlooked. The watermark holds the stream's incarnation and
//     the hash of its last record. They are checked at start, at each consumer
//     reset and each second, and stream sequences have to be contiguous. Any miss
//     stops the partition: its views are refused from then on. Other partitions
//     go on.
//   - A session that SPEC 1.4 stops is listed with its reason and served to
//     nobody until a release is in its log. Other sessions go on.
//   - What was damaged on disk is refused, not shortened: reads check that what
//     they return is complete and that its links hold, and a store whose newest
//     batches do not follow each other is not opened.
//
// # What it does not
//
// Reads may be stale: only the compare-and-set of an append is the check. A
// caller that knows a stream sequence passes it, and is answered from a mirror
// that is at least as new. Imports are held raw; their seeds are not judged.
//
// # Layout
//
// Format 2. Numbers in keys are big-endian, ids end with a zero byte, times have
// their sign bit turned over so that they sort.
//
//	F                                format version, decimal
//	W partition(2)                   watermark, JSON
//	J partition(2) streamSeq(8)      batch that went on from there: to, oldest, written (8 each)
//	S id                             row: state, tail and counters, JSON
//	E id 0 seq(8)                    own events up to this one, of one record: link(32), 0, streamSeq(8), its space if another's
//	R id 0 streamSeq(8)              raw record of the space of id
//	M id 0 message id                seq(8) of the event that carries the id
//	N id                             records came before the session had a genesis; without id: nobody kept it up to here
//	A id 0 streamSeq(8)              alarm, JSON
//	X partition(2) streamSeq(8)      raw record whose subject names no session of the partition
//	Q partition(2) id                the session is runnable
//	C partition(2) id                the session has children that hold a slot
//	G partition(2) id                a question in the session waits for a person
//	L createdAt(8) id                all sessions
//	T root 0 createdAt(8) id         sessions of a tree
//	P parent 0 createdAt(8) id       sessions whose header names the parent
package sessionstore
