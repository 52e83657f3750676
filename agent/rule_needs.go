//go:build !mutate_needs

package agent

// ignoreNeeds drives sessions whatever they need of a worker. Tests that look for the
// damage set it.
const ignoreNeeds = false
