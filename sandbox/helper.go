//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/files"
	"github.com/entail-fleet/entail/internal/wire"
	"github.com/entail-fleet/entail/session"
)

// helper is a confined process that does file operations, one after the other, on
// one kind of grant.
type helper struct {
	kind    helperKind
	launch  *launch
	by      *launcher     // the process
	control *net.UnixConn // renewals to it
	jobs    *net.UnixConn // jobs to it and answers from it
	answers *bufio.Reader // from jobs
	gone    chan struct{} // closed by watch when the process is gone
	told    report        // set before gone is closed
	number  uint64        // of the last job
}

// helperKind is what calls must have in common to use one helper. Root and hidden paths
// do not change in a Workspace.
type helperKind struct {
	mode session.SandboxMode
	user wire.User
	own  bool // user counts
}

func (w *Workspace) helperKind(g grant) helperKind {
	k := helperKind{mode: g.mode}
	if u := w.as(g); u != nil {
		k.user, k.own = *u, true
	}
	return k
}

// errUnbegun says that a helper has ended and cannot have begun its last job.
var errUnbegun = errors.New("the helper ended before the operation")

// launchHelper starts a helper. It can do a job when it has answered to its post.
func (w *Workspace) launchHelper(g grant, r wire.Request, lease Lease) (*helper, error) {
	jobs, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	o := &wire.Order{
		Request: wire.Request{Bounds: r.Bounds, Cap: r.Cap}, Serve: true, User: w.as(g), MaxABI: w.runner.cfg.maxABI,
		Namespaces: !r.Unconfined && w.runner.host.spaces != noNamespaces, Deadline: deadline(lease),
	}
	l := w.newLaunch(o, g, nil)
	by, err := w.runner.bear(w.runner.kindOf(o), &Streams{In: theirs, Err: l.stderr})
	err = errors.Join(err, theirs.Close())
	if err != nil {
		return nil, errors.Join(err, jobs.Close())
	}
	h := &helper{
		kind: w.helperKind(g), launch: l, by: by, control: by.conn,
		jobs: jobs, answers: bufio.NewReaderSize(jobs, 64<<10), gone: make(chan struct{}),
	}
	done := l.start(by)
	go func() {
		h.told = <-done
		close(h.gone)
	}()
	return h, nil
}

// exchange sends a frame and waits for the answer to it.
func (h *helper) exchange(head any, hidden []string) (wire.Answer, string, error) {
	if err := wire.WriteFrame(h.jobs, head, ""); err != nil {
		return wire.Answer{}, "", unread(err)
	}
	for {
		var a wire.Answer
		output, err := wire.ReadFrame(h.answers, &a)
		if err != nil || !a.WantsLinked {
			return a, output, unread(err)
		}
		if err := wire.WriteFrame(h.jobs, linked(hidden), ""); err != nil {
			return a, "", err
		}
	}
}

// unread recognises the errors that say that the other end was closed before it
// had read all that was sent to it. What it did not read it cannot have begun.
func unread(err error) error {
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("%w: %w", errUnbegun, err)
	}
	return err
}

// linked answers a helper, which cannot look at what is hidden.
func linked(hidden []string) wire.Job {
	ids, err := files.Linked(hidden)
	if err != nil {
		return wire.Job{Unsure: err.Error()}
	}
	return wire.Job{Linked: ids}
}

// reply is what came of an exchange.
type reply struct {
	answer wire.Answer
	output string
	err    error
	ended  error // why the helper was ended meanwhile; the reply may be one all the same
}

// ask is exchange for whoever may lose patience. The helper is then gone, unless
// there is an error.
func (h *helper) ask(head any, c *fileCall) (reply, error) {
	done := make(chan reply, 1)
	go func() {
		var r reply
		r.answer, r.output, r.err = h.exchange(head, c.request.Hidden)
		done <- r
	}()
	var renewed <-chan struct{}
	if c.lease != nil {
		renewed = c.lease.Renewed()
	}
	encoder := json.NewEncoder(h.control)
	for {
		var why error
		select {
		case r := <-done:
			return r, nil
		case _, open := <-renewed:
			if !open {
				renewed = nil
				continue
			}
			_ = encoder.Encode(wire.Renewal{Deadline: deadline(c.lease), Job: h.number})
			continue
		case <-c.stop:
			why = errStopped
		case <-c.late:
			why = errTimeout
		}
		err := h.end()
		r := <-done
		r.ended = why
		return r, err
	}
}

// end ends the helper and waits until its process is gone.
func (h *helper) end() error {
	_ = h.by.cmd.Process.Kill() // it may be gone
	_ = h.control.Close()
	_ = h.jobs.Close()
	late := time.NewTimer(sweepGrace)
	defer late.Stop()
	select {
	case <-h.gone:
		h.launch.stderr.Close()
		return nil
	case <-late.C:
		return errors.New("the helper for file operations cannot be killed")
	}
}

// left reports whether the helper is gone.
func (h *helper) left() bool {
	select {
	case <-h.gone:
		return true
	default:
		return false
	}
}

// deadline is a lease's on the wire, where zero means none.
func deadline(lease Lease) time.Duration {
	if lease == nil {
		return 0
	}
	return max(lease.Deadline(), 1)
}
