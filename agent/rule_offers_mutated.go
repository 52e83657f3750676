//go:build mutate_offers

package agent

const ignoreOffers = true
