//go:build !mutate_order

package delegation

// seedEndsFirst is the rule that the seed's end stands in front of everything a
// delegation adds. A build with the tag mutate_order takes it out.
const seedEndsFirst = true
