//go:build linux && (amd64 || arm64)

package sandbox

import (
	"time"

	"github.com/entail-fleet/entail/internal/wire"
)

// BootTime returns the time since the machine was started, the time it was
// suspended included. It is the clock of Lease.
func BootTime() time.Duration { return wire.BootTime() }
