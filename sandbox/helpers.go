//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/entail-fleet/entail/internal/wire"
	"github.com/entail-fleet/entail/session"
)

// helpers is the home of file operations that is a confined process beside this
// one. A workspace has at most one. It is started for the first operation, and
// again for the first on another kind of grant, once the old one is gone.
//
// Operations wait for each other: they are short, and one that is behind another in
// the same process is still done sooner than a process of its own is started.
type helpers struct {
	workspace *Workspace
	slot      chan *helper           // holds the helper, or nil; whoever took it may use it
	current   atomic.Pointer[helper] // for looking at it only
}

var _ home = (*helpers)(nil)

func newHelpers(w *Workspace) *helpers {
	s := &helpers{workspace: w, slot: make(chan *helper, 1)}
	s.slot <- nil
	return s
}

// fileCall is one call of a file tool.
type fileCall struct {
	stop    <-chan struct{}
	late    <-chan time.Time
	lease   Lease
	grant   grant
	request wire.Request
}

// perform implements home.
func (s *helpers) perform(stop <-chan struct{}, lease Lease, g grant, r wire.Request) (Result, error) {
	timer := time.NewTimer(fileTimeout)
	defer timer.Stop()
	c := &fileCall{stop: stop, late: timer.C, lease: lease, grant: g, request: r}
	h, err := s.take(stop, timer.C)
	if err != nil {
		return Result{}, err
	}
	defer func() { s.put(h) }()
	var res Result
	for range 2 { // a helper that ended before it began is replaced once
		if leaseOver(lease) {
			return Result{}, fmt.Errorf("%w: %w", ErrNotStarted, ErrLeaseOver)
		}
		if h, err = s.suit(h, c.grant); err != nil {
			return Result{}, err
		}
		if h == nil {
			if h, res, err = s.start(c); h == nil {
				return res, err
			}
		}
		if res, err = s.do(h, c); !errors.Is(err, errUnbegun) {
			return res, err
		}
	}
	return Result{}, fmt.Errorf("%w: %w", ErrNotStarted, err)
}

// take waits for the helper to be free.
func (s *helpers) take(stop <-chan struct{}, late <-chan time.Time) (*helper, error) {
	select {
	case h := <-s.slot:
		return h, nil
	case <-stop:
		return nil, fmt.Errorf("%w: %w while another operation went on", ErrNotStarted, errStopped)
	case <-late:
		return nil, fmt.Errorf("%w: %w while another operation went on", ErrNotStarted, errTimeout)
	}
}

func (s *helpers) put(h *helper) {
	if h == nil {
		s.current.Store(nil)
	}
	s.slot <- h
}

// suit returns h if it is there and of the grant's kind. Else it is ended, and gone.
func (s *helpers) suit(h *helper, g grant) (*helper, error) {
	if h == nil || h.kind == s.workspace.helperKind(g) && !h.left() {
		return h, nil
	}
	if err := h.end(); err != nil {
		return h, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	return nil, nil
}

// start starts a helper for a call. Without one, it returns what came of the call.
func (s *helpers) start(c *fileCall) (*helper, Result, error) {
	post, err := s.workspace.post(c.request.Bounds)
	if err != nil {
		return nil, Result{}, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	h, err := s.workspace.launchHelper(c.grant, c.request, c.lease)
	if err != nil {
		return nil, Result{}, err
	}
	s.current.Store(h)
	r, err := h.ask(post, c)
	switch {
	case err != nil:
		return nil, Result{}, fmt.Errorf("%w: %w", ErrNotStarted, err)
	case r.ended != nil:
		return nil, Result{}, fmt.Errorf("%w: %w", ErrNotStarted, r.ended)
	case r.err == nil && r.answer.Code == "":
		return h, Result{}, nil
	}
	// It ends by itself now, and has said why on one socket or the other.
	late := time.NewTimer(sweepGrace)
	defer late.Stop()
	select {
	case <-h.gone:
	case <-late.C:
	}
	if err := h.end(); err != nil {
		return nil, Result{}, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	if r.err == nil {
		res, err := fileResult(wire.Performance{Code: r.answer.Code, Output: r.output}, c.grant.mode)
		return nil, res, err
	}
	res, err := h.launch.result(h.told, nil)
	return nil, res, err
}

// do has a helper do a job.
func (s *helpers) do(h *helper, c *fileCall) (Result, error) {
	h.number++
	r, err := h.ask(wire.Job{Number: h.number, Op: c.request.Op, Cap: c.request.Cap, Deadline: deadline(c.lease)}, c)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	if r.err == nil && r.answer.Cause == "" {
		return fileResult(wire.Performance{
			Output: r.output, Code: r.answer.Code, Denied: r.answer.Denied, Truncated: r.answer.Truncated,
		}, c.grant.mode)
	}
	res := Result{Failed: true, Code: CodeFailed, Output: "the operation was ended, and may have been done all the same"}
	switch {
	case r.err == nil: // the lease
		res.Limit = session.LimitLease
		return res, errors.Join(ErrLeaseOver, h.end())
	case r.ended != nil:
		if res.TimedOut = errors.Is(r.ended, errTimeout); res.TimedOut {
			res.Limit = session.LimitTime
		}
		return res, nil
	}
	if err := h.end(); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	if errors.Is(r.err, errUnbegun) || h.told.ending != nil { // it went with an older lease
		return Result{}, fmt.Errorf("%w: %w", errUnbegun, r.err)
	}
	return Result{}, fmt.Errorf("%w: in the middle of a file operation: %w: %s", ErrLost, r.err, h.launch.stderr)
}

// leave makes sure, for a call that needs no helper, that none of another kind is
// there.
func (s *helpers) leave(stop <-chan struct{}, g grant, patience time.Duration) error {
	if h := s.current.Load(); h == nil || h.kind == s.workspace.helperKind(g) {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	h, err := s.take(stop, timer.C)
	if err != nil {
		return err
	}
	h, err = s.suit(h, g)
	s.put(h)
	return err
}

// close ends the helper.
func (s *helpers) close() error {
	h := <-s.slot
	defer s.put(nil)
	if h == nil {
		return nil
	}
	return h.end()
}
