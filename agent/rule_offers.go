//go:build !mutate_offers

package agent

// ignoreOffers drives sessions in whatever workspace they are. Tests that look for
// the damage set it.
const ignoreOffers = false
