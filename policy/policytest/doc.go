// Package policytest grows trees of sessions for tests, and holds them to what
// SPEC says of policy.
//
// A [Tree] plays coordinators and drivers: each step is decided by package policy,
// composed by the codec, accepted by the fold and written as the record that would
// stand in a stream. A [Forest] lets chance grow whole trees and holds every step
// to I1 and I12, read from SPEC once more on raw events. [Permit] makes the permits
// that tests of a fence need: a permit can only come from policy.Decide, so it is
// decided here as everywhere.
package policytest
