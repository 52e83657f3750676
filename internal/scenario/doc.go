// Package scenario holds tests of whole stories, with everything real: broker,
// coordinators with their mirrors, workers that are processes where one has to
// be killed, and the kernel's fence. It has no other code.
//
// A test's name carries the id of the case that it holds: INH20 is a row of
// docs/conformance.md, A1 a fault that users of comparable systems have reported.
// Each looks at the log, as it stands in the stream, or at the disk.
//
// Tests that break nothing share one deployment, each with a session and a
// workspace of its own. The others start one.
package scenario
