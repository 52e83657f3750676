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

// home is where file operations are done.
type home interface {
	// perform does one operation. It may wait for another one to end, but no longer
	// than stop and the time for an operation allow.
	perform(stop <-chan struct{}, lease Lease, g grant, r wire.Request) (Result, error)
}

// home returns where the file operations of a grant are done. This process does
// none that must run as another user.
func (w *Workspace) home(g grant) home {
	if w.runner.cfg.FilesInProcess && w.as(g) == nil {
		return inProcess{w}
	}
	return w.helpers
}

// inProcess is the home that is this process itself.
type inProcess struct{ workspace *Workspace }

// Why an operation may not go on, beside the end of its lease.
var (
	errStopped = errors.New("its caller gave it up")
	errTimeout = errors.New("its time was up")
)

// perform does an operation here. It cannot be killed; it looks before each
// effect whether it may still have it.
func (h inProcess) perform(stop <-chan struct{}, lease Lease, g grant, r wire.Request) (Result, error) {
	if leaseOver(lease) {
		return Result{}, fmt.Errorf("%w: %w", ErrNotStarted, ErrLeaseOver)
	}
	post, err := h.workspace.post(r.Bounds)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	linked := func() ([]wire.FileID, error) { return files.Linked(r.Hidden) }
	site, err := files.Open(post, linked)
	if err != nil {
		return fileResult(wire.Performance{Code: wire.CodeUnavailable, Output: err.Error()}, g.mode)
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
	res, err := fileResult(p, g.mode)
	switch {
	case ended == nil:
		return res, err
	case errors.Is(ended, ErrLeaseOver):
		err = ErrLeaseOver
		res.Limit = session.LimitLease
	}
	if res.TimedOut = errors.Is(ended, errTimeout); res.TimedOut {
		res.Limit = session.LimitTime
	}
	return res, err
}

// post says where operations are done.
func (w *Workspace) post(b wire.Bounds) (wire.Post, error) {
	root, err := files.Identify(w.root)
	if err != nil {
		return wire.Post{}, err
	}
	temp, err := files.Identify(w.temp)
	return wire.Post{Bounds: b, RootID: root, TempID: temp}, err
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
