//go:build mutate_order

package session

const seedEndsFirst = false
