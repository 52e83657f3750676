//go:build mutate_needs

package agent

const ignoreNeeds = true
