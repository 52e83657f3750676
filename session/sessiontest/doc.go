// Package sessiontest writes and reads session logs in memory, for tests.
//
// A [Stream] plays coordinators, drivers and the broker: it writes the raw
// records of a tree of sessions in stream order, and takes records that no
// honest writer makes. A [Replica] is the simplest correct reader of them.
// [Generate] lets chance write a whole tree.
package sessiontest
