// Package trees holds thousands of random trees of sessions to the laws of policy,
// and to one law more: fold(all) = fold(mirror) = fold(stream), for any split into
// records and any redelivery. Broker and mirror are real. It has no other code.
package trees
