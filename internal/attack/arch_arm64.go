//go:build linux

package attack

// archAttempts are on what this architecture alone has.
func archAttempts() []Attempt { return nil }
