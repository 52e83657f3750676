// Package verify checks the invariants of SPEC 9 on the raw records of a
// deployment or of an export: I1 to I7, I9, I11 and I12.
//
// It is a second opinion. Of the project it imports package session, and of that
// only the codec: how a record is cut into events, how links are computed and
// what the values mean. Which records are a session's log, what policy a child
// must start with and on what a decision stood is derived here again, straight
// from SPEC, so that a mistake in the fold or in the capture does not hide
// itself.
//
// # What a finding is
//
// A [Finding] names the invariant, the clause, the session, the seq and the
// stream sequence. Besides the invariants there is one kind of finding
// called [Log]: a session that cannot be followed to its end by SPEC 1.4.
//
// A turn record that the log does not allow is void, which is no violation: one
// worker wrote it and it changed nothing. It becomes a finding when the log goes
// on from it, because then somebody took it for valid. verify therefore follows
// a doubtful turn record on probation: a later record that stands in its place
// makes it void after all.
//
// # What it needs
//
// Records come through a [Source], rows of a mirror through a [Mirror]. Sessions
// are read one at a time, parents before children, and no more is kept than a
// few words for each event of one tree.
//
// [Export] writes a tree to files and [OpenExport] reads them as a Source again.
package verify
