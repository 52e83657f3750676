//go:build mutate_order

package delegation

const seedEndsFirst = false
