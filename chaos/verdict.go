package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/verify"
)

// Verdict is what the logs of a run say after everything has come to its end.
type Verdict struct {
	// Report is verify's, over the same records.
	Report verify.Report
	// Trees counts roots, Done those of them whose every session has ended.
	Trees, Done int
	// Sessions counts all logs, Delegations the allowed delegating calls.
	Sessions, Delegations int
	// HitAtCall and HitAtGenesis count the delegating calls that a worker died
	// on: another one took the turn over while the call was open, before its
	// decision was in the log, or after.
	HitAtCall, HitAtGenesis int
	// Faults are what a finished run must not show, one line each.
	Faults []string
}

// Floors are the least that a run must have reached to say anything.
type Floors struct {
	Trees, Delegations      int
	HitAtCall, HitAtGenesis int
}

// String is the verdict's counts in one line.
func (v Verdict) String() string {
	return fmt.Sprintf("%d of %d trees done, %d sessions, %d delegations, %d hit at the call, %d hit at the genesis, %d records, %d void, checked %v, %d findings, %d faults",
		v.Done, v.Trees, v.Sessions, v.Delegations, v.HitAtCall, v.HitAtGenesis,
		v.Report.Records, v.Report.Void, v.Report.Checked, len(v.Report.Findings), len(v.Faults))
}

// Check returns an error that names everything that is wrong with a run: what
// verify found, every fault, and every floor that was not reached.
func (v Verdict) Check(f Floors) error {
	var errs []error
	for _, finding := range v.Report.Findings {
		errs = append(errs, errors.New(finding.String()))
	}
	for _, fault := range v.Faults {
		errs = append(errs, errors.New(fault))
	}
	for _, c := range []struct {
		what        string
		have, least int
	}{
		{"trees done", v.Done, f.Trees},
		{"delegations", v.Delegations, f.Delegations},
		{"workers that died at a call", v.HitAtCall, f.HitAtCall},
		{"workers that died at a genesis", v.HitAtGenesis, f.HitAtGenesis},
	} {
		if c.have < c.least {
			errs = append(errs, fmt.Errorf("only %d %s, a run needs %d to say anything", c.have, c.what, c.least))
		}
	}
	return errors.Join(errs...)
}

// Judge reads every log of src, which must be at rest, and says what came of the
// run. The error is about reading, never about what was found.
func Judge(ctx context.Context, src verify.Source, opt verify.Options) (Verdict, error) {
	report, err := verify.Run(ctx, src, opt)
	if err != nil {
		return Verdict{}, fmt.Errorf("verify: %w", err)
	}
	ids, err := src.Sessions(ctx)
	if err != nil {
		return Verdict{}, fmt.Errorf("list sessions: %w", err)
	}
	j := judge{src: src, logs: map[session.ID]*log{}}
	for _, id := range ids {
		if id == id.Root() {
			if err := j.read(ctx, id, session.Prefix{}); err != nil {
				return Verdict{}, fmt.Errorf("judge tree %s: %w", id, err)
			}
		}
	}
	for _, id := range ids {
		if j.logs[id] == nil {
			j.fault(id, "it has records and no genesis that a parent's log holds")
		}
	}
	return j.verdict(report), nil
}

// judge is one judgement.
type judge struct {
	src    verify.Source
	logs   map[session.ID]*log
	faults []string
}

func (j *judge) fault(id session.ID, format string, args ...any) {
	j.faults = append(j.faults, fmt.Sprintf("session %s: %s", id, fmt.Sprintf(format, args...)))
}

// read reads a session and everything that it started.
func (j *judge) read(ctx context.Context, id session.ID, p session.Prefix) error {
	if j.logs[id] != nil {
		j.fault(id, "it was started twice")
		return nil
	}
	l := newLog(id)
	j.logs[id] = l
	err := j.src.Records(ctx, id, func(raw session.Raw) error {
		if err := l.record(raw, p); err != nil {
			j.fault(id, "%v", err)
		}
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("read session %s: %w", id, err)
	}
	for _, b := range l.births {
		if err := j.read(ctx, b.id, b.prefix); err != nil {
			return err
		}
	}
	return nil
}

// verdict sums up.
func (j *judge) verdict(report verify.Report) Verdict {
	v := Verdict{Report: report, Sessions: len(j.logs)}
	unfinished := map[session.ID]bool{}
	for _, id := range slices.Sorted(maps.Keys(j.logs)) {
		l := j.logs[id]
		if id == id.Root() {
			v.Trees++
		}
		if !l.ended {
			unfinished[id.Root()] = true
		}
		v.Delegations += len(l.allowed)
		v.HitAtCall += l.hits[AtCall]
		v.HitAtGenesis += l.hits[AtGenesis]
		for _, why := range l.faults(j.logs) {
			j.fault(id, "%s", why)
		}
	}
	v.Done = v.Trees - len(unfinished)
	v.Faults = j.faults
	return v
}

// list joins names.
func list[S ~string](items []S) string {
	out := make([]string, len(items))
	for i, s := range items {
		out[i] = string(s)
	}
	return strings.Join(out, ", ")
}
