//go:build mutate_failures

package agent

const sparesFailures = false
