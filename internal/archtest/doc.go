// Package archtest holds the rules of this repository that are about its
// shape, as tests.
//
// The tests read the source itself, not the output of go list, so that files
// behind build tags obey too and a package that does not exist yet breaks
// nothing. What one file can show on its own (a sleep, a print) is also a lint
// rule; it stands here again where the rule must hold on a machine that has
// only Go.
//
// To add a package, add one entry to the table in rules_test.go and the same
// allow list to depguard in .golangci.yml; a test compares the two.
//
// The package has no code outside its tests.
package archtest
