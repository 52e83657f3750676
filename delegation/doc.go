// Package delegation composes what brings sessions into being: a root, a
// person's fork and, above all, a child.
//
// A delegation is three steps on one view of the parent's log, at one exact
// tail N, and the same three on every retry (SPEC 4.4):
//
//	capture   what the child inherits           policy.Capture
//	compose   decision, header, first batch     Child
//	commit    one record, compare-and-set on N  the caller
//
// Because the parent's allowing decision and the child's whole first batch are
// one record, a switch of the parent is either before N and inherited, or after
// it and belongs to the parent's future. There is no half-made child, no child
// without its parent's decision, and no allowed delegation without its child.
//
// The package is pure: times and views are arguments, nothing is sent. It also
// composes what a child's end owes its parent: [Notices].
package delegation
