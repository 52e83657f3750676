// Package scale measures deployments with many sessions on one machine, and holds
// them to what must not grow with their number. It has no other code than its
// tests; docs/limits.md has the figures.
//
// # How
//
// A broker, coordinators and workers run as processes of their own: the test binary,
// started again. So the memory of each is known apart, as the kernel counts it and
// as its heap is after a collection.
//
// Sessions are written in bulk by a fixture that composes records with the code that
// the product composes them with, publishes them without waiting for each other, and
// gives each the headers of the one append. It stands in for many coordinators and
// workers over a long time; what is measured begins when it has ended.
//
// # What is asserted
//
// The default run is small and asserts shape: the work for n sessions against that
// for four times as many, in counts of allocations and messages, never in time. Its
// measure must find the one thing that has to grow, a listing of everything.
//
// The long runs are the same tests with more sessions, see docs/limits.md:
//
//	SCALE_SESSIONS=100000 SCALE_EVENTS=20   sessions, and how long each log is
//	SCALE_TREE=5000                         sessions of the one tree
//	SCALE_PARKED=10000                      parked sessions
package scale
