//go:build !mutate_order

package session

// seedEndsFirst is the rule that what a delegation adds stands behind the end of
// the seed, where it beats the seed (SPEC 4.3). A build with the tag mutate_order
// takes it out: there it stands in front, among the inherited history, and the
// history wins.
const seedEndsFirst = true
