//go:build mutate_ids

package coordinator

const idsTaken = false
