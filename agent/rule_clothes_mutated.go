//go:build mutate_clothes

package agent

const seesThrough = false
