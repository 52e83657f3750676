//go:build mutate_drain

package agent

const ignoreDrain = true
