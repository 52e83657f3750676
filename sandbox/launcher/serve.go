//go:build linux && (amd64 || arm64)

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/files"
	"github.com/entail-fleet/entail/internal/wire"
)

// serve makes this process a helper: it confines a thread as for a command, which
// then executes the launcher's program anew. All other threads end with that, and
// so every thread of the helper is confined, whatever its code does.
func serve(c *control, o *wire.Order, d dirs, apart thread) int {
	var stage string
	var err error
	apart.do(func() {
		if stage, err = wire.StageConfine, restrict(o, d); err != nil {
			return
		}
		if o.Deadline != 0 && wire.BootTime() >= o.Deadline {
			stage, err = wire.StageLease, errLeaseOver
			return
		}
		stage = wire.StageExec
		if _, err = unix.FcntlInt(wire.ControlFD, unix.F_SETFD, 0); err == nil {
			err = syscall.Exec("/proc/self/exe", []string{wire.HelperName}, wire.HelperEnv())
		}
	})
	return c.fail(stage, err)
}

// jobsFD is the socket for jobs and answers, in place of a standard input.
const jobsFD = 0

// helper does the file operations of one workspace under one mode, one at a time.
type helper struct {
	site *files.Site
	in   *bufio.Reader // jobs
	out  *os.File      // answers, on the same socket
	// control gives renewals, and its end is the worker's.
	control *os.File

	mu    sync.Mutex // guards what follows
	alarm *alarm
	job   uint64 // the number of the one at work, zero in between
}

// helperStage is the life of a helper. It ends with its worker, or with the lease
// of the last call, and has nothing to clean up.
func helperStage() int {
	if err := errors.Join(
		unix.SetNonblock(wire.ControlFD, true),
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0), // as before: executing undid it
	); err != nil {
		return 1
	}
	jobs := os.NewFile(jobsFD, "jobs")
	h := &helper{in: bufio.NewReaderSize(jobs, 64<<10), out: jobs, control: os.NewFile(wire.ControlFD, "control")}
	var err error
	if h.alarm, err = newAlarm(0); err != nil {
		return 1
	}
	var post wire.Post
	if _, err := wire.ReadFrame(h.in, &post); err != nil {
		return 1
	}
	if h.site, err = files.Open(post, h.linked); err != nil {
		h.answer(wire.Answer{Code: wire.CodeUnavailable}, err.Error())
		return 0
	}
	go h.watchLease()
	go h.watchWorker()
	for h.answer(wire.Answer{}, ""); ; {
		if !h.work() {
			return 0
		}
	}
}

// work does one job and reports whether another may follow.
func (h *helper) work() bool {
	var j wire.Job
	if _, err := wire.ReadFrame(h.in, &j); err != nil {
		return false
	}
	if err := h.begin(j); err != nil {
		return false
	}
	p := h.site.Perform(j.Op, j.Cap, h.over)
	h.mu.Lock()
	h.job = 0
	h.mu.Unlock()
	h.answer(wire.Answer{Code: p.Code, Denied: p.Denied, Truncated: p.Truncated}, p.Output)
	if j.Op.Edit != nil || j.Op.Write != nil || j.Op.Grep != nil {
		release()
	}
	return true
}

// keptHeap is how much memory a helper keeps between jobs.
const keptHeap = 6 << 20

// release gives back to the system what a large job has used.
func release() {
	sizes := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(sizes)
	if sizes[0].Value.Uint64()+sizes[1].Value.Uint64() > keptHeap {
		debug.FreeOSMemory()
	}
}

// begin takes on a job and its lease.
func (h *helper) begin(j wire.Job) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.job = j.Number
	if j.Deadline == h.alarm.deadline {
		return nil
	}
	return h.alarm.set(j.Deadline)
}

// over ends this process when the lease is over.
func (h *helper) over() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endIfOver()
	return nil
}

// endIfOver ends this process when the lease is over, having said so: as the answer
// to the job at work, or to the control socket when there is none and so whatever
// the worker asks for next has not begun. h.mu is held, so that none begins.
func (h *helper) endIfOver() {
	if !h.alarm.over() {
		return
	}
	if h.job != 0 {
		h.answer(wire.Answer{Cause: wire.CauseLease}, "")
	} else {
		_ = json.NewEncoder(h.control).Encode(wire.Notice{Ending: &wire.Ending{Cause: wire.CauseLease}})
	}
	syscall.Exit(0)
}

// watchLease ends this process with the lease.
func (h *helper) watchLease() {
	for range h.alarm.rings {
		h.mu.Lock()
		h.endIfOver()
		h.mu.Unlock()
	}
}

// watchWorker takes renewals until the worker closes its end or is gone.
func (h *helper) watchWorker() {
	for d := json.NewDecoder(h.control); ; {
		var r wire.Renewal
		if d.Decode(&r) != nil {
			syscall.Exit(0)
		}
		h.mu.Lock()
		if r.Job == h.job && h.alarm.set(r.Deadline) != nil {
			syscall.Exit(1)
		}
		h.mu.Unlock()
	}
}

// answer sends a frame. A worker that is gone needs none.
func (h *helper) answer(a wire.Answer, output string) { _ = wire.WriteFrame(h.out, a, output) }

// linked asks the worker, since nothing hidden can be looked at from here.
func (h *helper) linked() ([]wire.FileID, error) {
	h.answer(wire.Answer{WantsLinked: true}, "")
	var j wire.Job
	if _, err := wire.ReadFrame(h.in, &j); err != nil {
		return nil, fmt.Errorf("ask for hidden files: %w", err)
	}
	if j.Unsure != "" {
		return nil, errors.New(j.Unsure)
	}
	return j.Linked, nil
}
