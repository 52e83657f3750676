//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/entail-fleet/entail/internal/files"
	"github.com/entail-fleet/entail/internal/wire"
	"github.com/entail-fleet/entail/session"
)

// inProcess is the home of file operations that is this process itself.
type inProcess struct{ workspace *Workspace }

// Why an operation may not go on, beside the end of its lease.
var (
	errStopped = errors.New("its caller gave it up")
	errTimeout = errors.New("its time was up")
)

// perform does an operation here. It cannot be killed; it looks before each
// effect whether it may still have it.
func (h inProcess) perform(stop <-chan struct{}, lease Lease, r wire.Request, mode session.SandboxMode) (Result, error) {
	if leaseOver(lease) {
		return Result{}, fmt.Errorf("%w: %w", ErrNotStarted, ErrLeaseOver)
	}
	w := h.workspace
	linked := func() ([]files.ID, error) { return files.Linked(r.Hidden) }
	site, err := files.Open(r.Bounds, w.root, w.temp, linked)
	if err != nil {
		return fileResult(wire.Performance{Code: wire.CodeUnavailable, Output: err.Error()}, mode)
	}
	defer func() { _ = site.Close() }() // nothing was written through it
	var ended error
	end := time.Now().Add(fileTimeout)
	p := site.Perform(r.Op, r.Cap, func() error {
		select {
		case <-stop:
			ended = errStopped
		default:
		}
		switch {
		case leaseOver(lease):
			ended = ErrLeaseOver
		case time.Now().After(end):
			ended = errTimeout
		}
		return ended
	})
	res, err := fileResult(p, mode)
	switch {
	case ended == nil:
		return res, err
	case errors.Is(ended, ErrLeaseOver):
		err = ErrLeaseOver
	}
	res.TimedOut = errors.Is(ended, errTimeout)
	return res, err
}

// leaseOver says whether a lease has ended; no lease never does.
func leaseOver(lease Lease) bool { return lease != nil && BootTime() >= lease.Deadline() }

// fileResult judges what a file operation came to.
func fileResult(p wire.Performance, mode session.SandboxMode) (Result, error) {
	if p.Code == wire.CodeUnavailable {
		if mode == session.DangerFullAccess {
			return Result{}, fmt.Errorf("%w: %s", ErrNotStarted, p.Output)
		}
		return unavailable(p.Output), nil
	}
	res := Result{Output: p.Output, Code: p.Code, Truncated: p.Truncated, Failed: p.Code != ""}
	if p.Denied {
		res = res.denied(session.DenialCertain, mode)
	}
	return res, nil
}
