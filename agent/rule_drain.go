//go:build !mutate_drain

package agent

// ignoreDrain has a draining worker go on as if it were not. Tests that look for the
// damage set it.
const ignoreDrain = false
