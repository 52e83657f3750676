package main

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/verify"
)

// stepKilled kills the worker that drives a delegating call, once as soon as the
// call is in the log, once as soon as the child is.
func stepKilled(ctx context.Context, m *demo, f *facts) error {
	for _, c := range []struct {
		ws, when string
		due      func(trail) bool
	}{
		{"killed-at-call", "the call", func(t trail) bool { return len(payloads[session.ToolCall](t.own)) > 0 }},
		{"killed-at-genesis", "the genesis", func(t trail) bool { return len(t.births) > 0 }},
	} {
		if err := m.killed(ctx, f, c.ws, c.when, c.due); err != nil {
			return err
		}
	}
	return nil
}

func (m *demo) killed(ctx context.Context, f *facts, ws, when string, due func(trail) bool) error {
	root, err := m.begin(ctx, plot{name: ws, prompt: "go", script: fmt.Sprintf(`sessions:
  root:
    - calls: [{id: c, tool: delegate, args: {kind: spawn, label: slow, prompt: look}}]
    - text: done
  slow:
    - {wait_for: %s, calls: [{id: a, tool: list, args: {path: .}}]}
    - text: end
`, m.signal(ws))})
	if err != nil {
		return err
	}
	var driver session.Writer
	if err := await(ctx, lookEvery, func() (bool, error) {
		t, err := m.trail(ctx, root)
		if err != nil || !due(t) {
			return false, err
		}
		driver = callWriter(t)
		return true, nil
	}); err != nil {
		return err
	}
	if err := m.kill(ctx, driver.Instance); err != nil {
		return err
	}
	if err := m.release(ws); err != nil {
		return err
	}
	if err := m.settle(ctx, root); err != nil {
		return err
	}
	parent, err := m.trail(ctx, root)
	if err != nil {
		return err
	}
	f.log(len(parent.births) == 1, "killed at %s: %d child", when, len(parent.births))
	_, r, writer, ok := parent.result(0)
	f.log(ok && !r.IsError && writer != driver && writer.Component == "worker", "the call was made by %s, its result (%s) written by %s", life(driver), resultWord(r, ok), life(writer))
	child, err := m.child(ctx, root, "slow")
	if err != nil {
		return err
	}
	f.log(completed(child) && completed(parent), "turns finished: the child's %t, the parent's %t", completed(child), completed(parent))
	return nil
}

// callWriter is who wrote the first call of a log.
func callWriter(t trail) session.Writer {
	for _, e := range t.own {
		if e.Type == session.TypeToolCall {
			return e.writer
		}
	}
	return session.Writer{}
}

// life names one life of a worker.
func life(w session.Writer) string {
	const enough = 6
	if n := len(w.Incarnation); n > enough {
		w.Incarnation = w.Incarnation[n-enough:]
	}
	return w.Instance + "/" + w.Incarnation
}

// completed reports whether the one turn of a log was completed.
func completed(t trail) bool {
	ends := payloads[session.TurnEnd](t.own)
	return len(ends) == 1 && ends[0].Reason.Kind == session.EndCompleted
}

// kill kills a worker's process and waits until another took its place.
func (m *demo) kill(ctx context.Context, worker string) error {
	victim, err := m.process(ctx, worker)
	if err != nil {
		return err
	}
	if victim.pid == 0 {
		return fmt.Errorf("no worker %q runs here", worker)
	}
	if err := syscall.Kill(victim.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill worker %s, process %d: %w", worker, victim.pid, err)
	}
	return await(ctx, lookEvery, func() (bool, error) {
		now, err := m.process(ctx, worker)
		return now.pid != 0 && now != victim, err
	})
}

// process finds the process of a worker, a zero one if none runs.
func (m *demo) process(ctx context.Context, worker string) (living, error) {
	all, err := m.place.running(ctx)
	if err != nil {
		return living{}, err
	}
	for _, p := range all {
		if p.name == worker {
			return p, nil
		}
	}
	return living{}, nil
}

// source gives verify the records of the stream itself, and the mirror of the same
// trees.
type source struct{ m *demo }

// Sessions implements verify.Source.
func (s source) Sessions(ctx context.Context) ([]session.ID, error) {
	var ids []session.ID
	var below func(session.ID) error
	below = func(id session.ID) error {
		ids = append(ids, id)
		t, err := s.m.trail(ctx, id)
		if err != nil {
			return err
		}
		for _, b := range t.births {
			if err := below(b.header.ID); err != nil {
				return err
			}
		}
		return nil
	}
	for _, root := range s.m.trees {
		if err := below(root); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// Rows implements verify.Mirror. Others may have sessions here too.
func (s source) Rows(ctx context.Context, fn func(verify.Row) error) error {
	for _, root := range s.m.trees {
		if err := (records{s.m.d, root}).Rows(ctx, fn); err != nil {
			return err
		}
	}
	return nil
}

// Records implements verify.Source.
func (s source) Records(ctx context.Context, id session.ID, fn func(session.Raw) error) error {
	genesis, own, err := s.m.records(ctx, id)
	if err != nil {
		return err
	}
	if genesis.Address.Space() != id {
		own = append([]session.Raw{genesis}, own...)
	}
	for _, raw := range own {
		if err := fn(raw); err != nil {
			return err
		}
	}
	return nil
}

func stepProof(ctx context.Context, m *demo, f *facts) error {
	root, ok := m.named["read-only"]
	if !ok { // told alone, this step has no story behind it
		if err := stepReadOnly(ctx, m, &facts{}); err != nil {
			return err
		}
		root = m.named["read-only"]
	}
	children, whole, err := m.firstBatches(ctx)
	if err != nil {
		return err
	}
	f.log(children > 0 && whole == children, "%d of %d children began with one record, pin to prompt", whole, children)

	report, err := verify.Run(ctx, source{m}, verify.Options{Mirror: source{m}})
	if err != nil {
		return err
	}
	f.log(report.Clean() && report.Sessions > 0, "verify on the stream: %d sessions, %d events, checked %v, %d findings", report.Sessions, report.Events, report.Checked, len(report.Findings))
	for _, x := range report.Findings {
		f.log(false, "%s", x)
	}
	dir := filepath.Join(m.base, "export")
	if err := verify.Export(ctx, records{m.d, root}, dir, root); err != nil {
		return err
	}
	exported, err := verify.OpenExport(dir)
	if err != nil {
		return err
	}
	if report, err = verify.Run(ctx, exported, verify.Options{AtRest: true}); err != nil {
		return err
	}
	f.disk(report.Clean() && report.Sessions == 2, "verify on an export: %d sessions, %d findings", report.Sessions, len(report.Findings))
	return m.explained(ctx, f, root)
}

// firstBatches counts the children of the story and those whose first record
// holds everything they start with.
func (m *demo) firstBatches(ctx context.Context) (children, whole int, err error) {
	ids, err := source{m}.Sessions(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, id := range ids {
		t, err := m.trail(ctx, id)
		if err != nil {
			return 0, 0, err
		}
		for _, b := range t.births {
			children++
			has := map[session.Type]bool{}
			for _, e := range b.events {
				has[e.Type] = true
			}
			if has[session.TypeApprovalPolicy] && has[session.TypeDescriptor] && has[session.TypeModelSelected] && has[session.TypeUserMessage] {
				whole++
			}
		}
	}
	return children, whole, nil
}

// explained has a denial explained, and holds the explanation to the stream.
func (m *demo) explained(ctx context.Context, f *facts, root session.ID) error {
	t, err := m.child(ctx, root, "confined")
	if err != nil {
		return err
	}
	call, result, _, ok := t.result(0)
	if !ok {
		return fmt.Errorf("session %s has no call to explain", t.header.ID)
	}
	var reply client.CallReply
	if err := m.d.Call(ctx, client.MethodCallExplain, client.CallRequest{Head: m.d.head, ID: t.header.ID, Call: call.CallID}, &reply); err != nil {
		return err
	}
	said := "nothing"
	for _, v := range reply.Values {
		if v.Knob == "sandbox" && len(v.Origins) > 0 {
			said = originText(v.Origins[len(v.Origins)-1])
		}
	}
	right := len(reply.Decisions) == 1 && reply.Result != nil && reply.Result.Denied && result.Denied
	f.log(right && said != "nothing", "%s %s was %s: %s", call.CallID, call.Name, resultWord(result, ok), said)
	return nil
}
