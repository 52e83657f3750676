package verify_test

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/verify"
)

// where says which finding a fault must give.
type where struct {
	clause string
	log    *log
	seq    session.Seq
}

// fault is a deployment with one thing wrong.
type fault struct {
	name      string
	invariant string
	build     func(*deployment) where
	mirror    func(rows) rows
}

// TestFault shows for each check faults that it catches, and that the finding
// says where.
func TestFault(t *testing.T) {
	t.Parallel()
	for _, f := range allFaults() {
		t.Run(f.invariant+" "+f.name, func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t)
			w := f.build(d)
			m := d.mirror()
			if f.mirror != nil {
				m = f.mirror(m)
			}
			wantFinding(t, runOn(t, d, verify.Options{Mirror: m, AtRest: true}), f.invariant, w)
		})
	}
}

func allFaults() []fault {
	return slices.Concat(faultsOfPolicy(), faultsOfBatch(), faultsOfChild(), faultsOfDecision(), faultsOfInbox(), faultsOfEffect(),
		faultsOfMirror(), faultsOfLink(), faultsOfWidth(), faultsOfLog())
}

func wantFinding(t *testing.T, r verify.Report, invariant string, w where) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Invariant == invariant && f.Clause == w.clause && f.Session == w.log.header.ID && f.Seq == w.seq {
			return
		}
	}
	t.Errorf("no finding %s (SPEC %s) at seq %d of %s among %d:", invariant, w.clause, w.seq, w.log.header.ID, len(r.Findings))
	for _, f := range r.Findings {
		t.Logf("finding: %v", f)
	}
}

// child delegates under the given parent policy and returns where I1 looks.
func child(d *deployment, parent []session.Payload, call want, b birth) *log {
	r := d.root(parent...)
	r.open(call)
	return r.delegate(0, b)
}

func batch(p ...session.Payload) birth { return birth{policy: p} }

func switched(m session.SandboxMode) []session.Payload { return []session.Payload{toMode(m)} }

func faultsOfPolicy() []fault {
	first := func(parent []session.Payload, call want, b birth) func(*deployment) where {
		return func(d *deployment) where { return where{"4.2", child(d, parent, call, b), 0} }
	}
	filtered := func(d *deployment) where {
		b := batch(pin())
		b.filter = &session.ToolFilter{Allow: tools("read", "write")}
		return where{"4.11", child(d, nil, spawn(`,"tools":{"allow":["read"]}`), b), 0}
	}
	auto := []session.Payload{toPreset(session.PresetAuto), toMode(session.DangerFullAccess), toApproval(session.Never)}
	full := []session.Payload{toMode(session.DangerFullAccess), toApproval(session.Never)}
	return []fault{
		{"a wider mode", "I1", first(switched(session.ReadOnly), spawn(""), batch(mode(session.WorkspaceWrite), pin())), nil},
		{"a narrower mode that nobody asked for", "I1", first(switched(session.WorkspaceWrite), spawn(""), batch(mode(session.ReadOnly), pin())), nil},
		{"no mode of a switched parent", "I1", first(switched(session.ReadOnly), spawn(""), batch(pin())), nil},
		{"a default copied into the child", "I1", first(nil, spawn(""), batch(mode(session.WorkspaceWrite), pin())), nil},
		{"no pin", "I1", first(switched(session.ReadOnly), spawn(""), batch(mode(session.ReadOnly))), nil},
		{"an identity that is not current", "I1", first(nil, spawn(""), batch(pin(), identity(session.PresetFullAccess))), nil},
		{"no identity of a Full access parent", "I1", first(full, spawn(""), batch(mode(session.DangerFullAccess), pin())), nil},
		{"Full access in place of auto", "I1", first(auto, spawn(""), batch(mode(session.DangerFullAccess), pin(), identity(session.PresetFullAccess))), nil},
		{"an identity beside a narrowing", "I1", first(full, spawn(`,"sandbox":"read-only"`), batch(mode(session.ReadOnly), pin(), identity(session.PresetFullAccess))), nil},
		{"a narrowing that was not written", "I1", first(full, spawn(`,"sandbox":"read-only"`), batch(mode(session.DangerFullAccess), pin())), nil},
		{"a wish that had to be refused", "I1", func(d *deployment) where {
			return where{"4.11", child(d, switched(session.ReadOnly), spawn(`,"sandbox":"workspace-write"`), batch(mode(session.ReadOnly), pin())), 0}
		}, nil},
		{"a narrowing under auto", "I1", func(d *deployment) where {
			return where{"4.11", child(d, auto, spawn(`,"sandbox":"read-only"`), batch(mode(session.ReadOnly), pin())), 0}
		}, nil},
		{"a filter wider than asked for", "I1", filtered, nil},
		{"a spawn with a prefix", "I1", func(d *deployment) where {
			r := d.root()
			r.open()
			r.close()
			cut := r.next
			r.open(spawn(""))
			return where{"4.1", r.delegate(0, birth{policy: []session.Payload{pin()}, cut: cut}), cut}
		}, nil},
		{"a fork cut before the last ended turn", "I1", func(d *deployment) where {
			r := d.root()
			r.open()
			r.close()
			r.open(fork(""))
			return where{"4.1", r.delegate(0, birth{policy: []session.Payload{pin()}, cut: 2}), 2}
		}, nil},
		{"a fork of a fork cut before the prefix's last ended turn", "I1", func(d *deployment) where {
			r := d.root()
			r.open()
			r.close()
			p := r.personsFork(r.next)
			p.open(fork(""))
			c := p.delegate(0, birth{policy: []session.Payload{pin()}})
			return where{"4.1", c, 0}
		}, nil},
		{"a switch after N in the child", "I1", func(d *deployment) where {
			r := d.root(toMode(session.WorkspaceWrite))
			r.write(session.ClassPolicy, toMode(session.ReadOnly))
			r.open(spawn(""))
			return where{"4.2", r.delegate(0, batch(mode(session.WorkspaceWrite), pin())), 0}
		}, nil},
		{"delegation's value outside the first batch", "I1", func(d *deployment) where {
			r := d.root()
			r.write(session.ClassPolicy, mode(session.ReadOnly))
			return where{"2.5", r, 2}
		}, nil},
		{"a record that names no default", "I1", func(d *deployment) where {
			r := d.root()
			r.open(spawn(""))
			b := batch(pin())
			b.change = func(p *session.ToolDecision) { p.Defaults = nil }
			at := r.next
			r.delegate(0, b)
			return where{"4.4", r, at}
		}, nil},
	}
}

func faultsOfBatch() []fault {
	changed := func(change func([]session.Payload) []session.Payload) func(*deployment) where {
		return func(d *deployment) where {
			b := batch(pin())
			b.events = change
			return where{"4.3", child(d, nil, spawn(""), b), 0}
		}
	}
	return []fault{
		{"no prompt", "I2", changed(func(e []session.Payload) []session.Payload { return e[:len(e)-1] }), nil},
		{"no descriptor", "I2", changed(func(e []session.Payload) []session.Payload { return append(e[:1:1], e[2:]...) }), nil},
		{"policy after the descriptor", "I2", changed(func(e []session.Payload) []session.Payload {
			return append(e[:2:2], append([]session.Payload{mode(session.ReadOnly)}, e[2:]...)...)
		}), nil},
		{"a policy event too many", "I2", changed(func(e []session.Payload) []session.Payload { return append([]session.Payload{pin()}, e...) }), nil},
		{"a second genesis", "I2", func(d *deployment) where {
			r := d.root()
			next := r.next
			d.root(toMode(session.DangerFullAccess))
			d.logs[r.header.ID] = r
			return where{"1.4", r, next}
		}, nil},
	}
}

func faultsOfChild() []fault {
	return []fault{
		{"an allowed delegation without a genesis", "I3", func(d *deployment) where {
			r := d.root()
			r.open(spawn(""))
			at := r.next
			r.run(0)
			return where{"4.4", r, at}
		}, nil},
		{"a genesis beside its parent's log", "I3", func(d *deployment) where {
			r := d.root()
			r.open(spawn(""))
			stale := *r
			r.write(session.ClassPolicy, toMode(session.ReadOnly))
			return where{"4.4", stale.delegate(0, batch(pin())), 0}
		}, nil},
		{"a genesis whose parent has no log", "I3", func(d *deployment) where {
			c := child(d, nil, spawn(""), batch(pin()))
			c.open(spawn(""))
			g := c.delegate(0, batch(pin()))
			d.raws = d.raws[len(d.raws)-1:]
			return where{"4.4", g, 0}
		}, nil},
		{"two children of one call", "I3", func(d *deployment) where {
			r := d.root()
			r.open(spawn(""))
			r.delegate(0, batch(pin()))
			b := batch(pin())
			b.id = session.ChildID(r.header.ID, "7.7.7")
			at := r.next
			r.delegate(0, b)
			return where{"4.5", r, at}
		}, nil},
		{"a child id that does not derive", "I3", func(d *deployment) where {
			r := d.root()
			r.open(spawn(""))
			b := batch(pin())
			b.id = session.ChildID(r.header.ID, "7.7.7")
			at := r.next
			r.delegate(0, b)
			return where{"4.5", r, at}
		}, nil},
		{"a decision that names another link", "I3", func(d *deployment) where {
			r := d.root()
			r.open(spawn(""))
			b := batch(pin())
			b.change = func(p *session.ToolDecision) { p.ChildLink = &session.Link{1} }
			at := r.next
			r.delegate(0, b)
			return where{"4.4", r, at}
		}, nil},
		{"a genesis by a call that delegates nothing", "I3", func(d *deployment) where {
			r := d.root()
			r.open(want{"write", "{}"})
			at := r.next
			r.delegate(0, batch(pin()))
			return where{"4.4", r, at}
		}, nil},
		{"a genesis by a denial", "I3", func(d *deployment) where {
			r := d.root()
			r.open(spawn(""))
			b := batch(pin())
			b.change = func(p *session.ToolDecision) { p.Verdict = session.Deny }
			at := r.next
			r.delegate(0, b)
			return where{"4.4", r, at}
		}, nil},
		{"a child that needs less of a worker than its parent", "I12", func(d *deployment) where {
			d.needs = &session.Needs{Labels: []string{"gpu"}, Tier: session.TierUID}
			b := batch(pin())
			b.header = func(h *session.Header) { h.Needs = &session.Needs{Labels: []string{"gpu"}} }
			return where{"7.9", child(d, nil, spawn(""), b), 0}
		}, nil},
		{"a child that is deeper than its parent's next", "I3", func(d *deployment) where {
			b := batch(pin())
			b.header = func(h *session.Header) { h.DelegationDepth = 3 }
			return where{"4.6", child(d, nil, spawn(""), b), 0}
		}, nil},
	}
}

func faultsOfDecision() []fault {
	wrong := func(clause string, change func(*log, *session.ToolDecision)) func(*deployment) where {
		return func(d *deployment) where {
			r := d.root(toMode(session.ReadOnly))
			old := r.basis
			r.write(session.ClassPolicy, toMode(session.WorkspaceWrite))
			r.open(want{"write", "{}"})
			p := r.decision(0, session.Allow)
			r.knobs[0] = old
			change(r, p)
			at := r.next
			r.turn(p)
			r.turn(r.result(0))
			return where{clause, r, at}
		}
	}
	result := func(decide bool, v session.Verdict) func(*deployment) where {
		return func(d *deployment) where {
			r := d.root()
			r.open(want{"write", "{}"})
			if decide {
				r.turn(r.decision(0, v))
			}
			at := r.next
			r.turn(r.result(0))
			return where{"5.1", r, at}
		}
	}
	return []fault{
		{"a basis older than the log", "I4", wrong("5.2", func(l *log, p *session.ToolDecision) {
			p.Basis, p.Mode = l.knobs[0], session.ReadOnly
		}), nil},
		{"a basis of defaults beside a switch", "I4", wrong("5.2", func(_ *log, p *session.ToolDecision) { p.Basis.Sandbox.Seq = nil }), nil},
		{"a basis that names no event of the log", "I4", wrong("5.2", func(_ *log, p *session.ToolDecision) { at := session.Seq(1); p.Basis.Preset.Seq = &at }), nil},
		{"a mode wider than its basis", "I4", wrong("5.2", func(_ *log, p *session.ToolDecision) { p.Mode = session.DangerFullAccess }), nil},
		{"a grant that nobody gave", "I6", wrong("5.6", func(_ *log, p *session.ToolDecision) { p.Grant, p.Mode = "a1", session.DangerFullAccess }), nil},
		{"a call that nobody made", "I4", wrong("5.1", func(_ *log, p *session.ToolDecision) { p.CallID = "1.1.5" }), nil},
		{"an effect without a decision", "I4", result(false, ""), nil},
		{"an effect under a denial", "I4", result(true, session.Deny), nil},
		{"an effect under a question", "I4", result(true, session.AskPerson), nil},
		{"a decision after its result", "I4", func(d *deployment) where {
			r := d.root()
			r.open(want{"write", "{}"})
			end := r.result(0)
			end.IsError, end.Code = true, session.CodeToolNotStarted
			r.turn(end)
			at := r.next
			r.turn(r.decision(0, session.Allow))
			return where{"5.1", r, at}
		}, nil},
		{"a decision in the result's record, after it", "I4", func(d *deployment) where {
			r := d.root()
			r.open(want{"write", "{}"})
			at := r.next
			r.turn(r.result(0), r.decision(0, session.Allow))
			return where{"5.1", r, at}
		}, nil},
		{"two decisions", "I4", func(d *deployment) where {
			r := d.root()
			r.open(want{"write", "{}"})
			r.turn(r.decision(0, session.Deny))
			at := r.next
			r.turn(r.decision(0, session.Allow))
			return where{"5.1", r, at}
		}, nil},
		{"two results", "I4", func(d *deployment) where {
			r := d.root()
			r.open(want{"write", "{}"})
			r.run(0)
			at := r.next
			r.turn(r.result(0))
			return where{"5.1", r, at}
		}, nil},
		{"a grant used twice", "I6", func(d *deployment) where {
			treeGrant(d)
			var r *log
			for _, r = range d.logs {
				break
			}
			r.open(want{"bash", "{}"})
			g := r.decision(0, session.Allow)
			g.Mode, g.Grant = session.WorkspaceWrite, "a1"
			at := r.next
			r.turn(g)
			return where{"5.6", r, at}
		}, nil},
		{"a grant that is older than a switch", "I6", func(d *deployment) where {
			r := d.root(toMode(session.ReadOnly))
			r.open(want{"bash", "{}"})
			r.ask(0)
			r.write(session.ClassInbox, &session.ApprovalDecided{ID: "a1", Outcome: session.AllowedOnce, By: ada()})
			r.write(session.ClassPolicy, toMode(session.ReadOnly))
			g := r.decision(0, session.Allow)
			g.Mode, g.Grant, g.By = session.WorkspaceWrite, "a1", session.StageApproval
			at := r.next
			r.turn(g)
			return where{"5.6", r, at}
		}, nil},
	}
}

func faultsOfInbox() []fault {
	say := func(id string, kind session.MessageKind) *session.UserMessage {
		m := prompt()
		m.ID, m.Source.Kind = id, kind
		return m
	}
	// wrong opens a turn, has a second message come and writes what says of it, with the
	// seqs of the two.
	wrong := func(clause string, says func(first, second session.Seq) []session.Payload) func(*deployment) where {
		return func(d *deployment) where {
			r := d.root()
			first := r.next - 1
			r.open()
			second := r.next
			r.write(session.ClassInbox, say("m2", session.FromUser))
			r.close()
			at := r.next
			events := says(first, second)
			r.turn(events...)
			r.turn(&session.Claim{Epoch: r.epoch + 1, Worker: "w1", Incarnation: "i1", Cause: session.CauseStart})
			return where{clause, r, at + session.Seq(len(events)) - 1}
		}
	}
	took := func(seqs ...session.Seq) session.Payload { return &session.Consumed{Turn: 1, Seqs: seqs} }
	end := func(seqs ...session.Seq) session.Payload {
		return &session.End{Outcome: session.OutcomeCancelled, Cancelled: seqs}
	}
	return []fault{
		{"a message consumed twice", "I7", wrong("7.2", func(first, _ session.Seq) []session.Payload { return []session.Payload{took(first), took(first)} }), nil},
		{"an event consumed that is no message", "I7", wrong("7.2", func(first, _ session.Seq) []session.Payload { return []session.Payload{took(first - 1)} }), nil},
		{"a message that overtakes another", "I7", wrong("7.2", func(_, second session.Seq) []session.Payload { return []session.Payload{took(second)} }), nil},
		{"an end that leaves messages", "I7", func(d *deployment) where {
			r := d.root()
			r.open()
			r.close()
			at := r.next
			r.write(session.ClassInbox, end())
			return where{"7.4", r, at}
		}, nil},
		{"an end that cancels what was read", "I7", func(d *deployment) where {
			r := d.root()
			first := r.next - 1
			r.open()
			r.turn(took(first))
			r.close()
			at := r.next
			r.write(session.ClassInbox, end(first))
			return where{"7.4", r, at}
		}, nil},
	}
}

// Messages that are consumed in order, a notice that overtakes one, an end that names what
// was left, and what comes after it are as they must be.
func TestInboxesThatAreReadAreClean(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	r := d.root()
	first := r.next - 1
	r.open()
	message := func(id string, kind session.MessageKind) session.Seq {
		m := prompt()
		m.ID, m.Source.Kind = id, kind
		if kind != session.FromUser {
			m.Source.SenderSessionID, m.Source.Form, m.Source.Turn, m.Source.Outcome = r.header.ID, "notice", 1, "completed"
		}
		r.write(session.ClassInbox, m)
		return r.next - 1
	}
	second, notice, left := message("m2", session.FromUser), message("m3", session.FromSettled), message("m4", session.FromUser)
	r.turn(&session.Consumed{Turn: 1, Seqs: []session.Seq{first}})
	r.turn(&session.Consumed{Turn: 1, Seqs: []session.Seq{notice}}, &session.Consumed{Turn: 1, Seqs: []session.Seq{second}})
	r.close()
	r.turn(&session.End{Outcome: session.OutcomeCancelled, Cancelled: []session.Seq{left}})
	message("m5", session.FromReport)
	if rep := runOn(t, d, verify.Options{Mirror: d.mirror(), AtRest: true}); len(rep.Findings) != 0 {
		t.Errorf("findings: %v", rep.Findings)
	}
}

// ask asks whether a call may run wider, as question a1.
func (l *log) ask(i int) {
	l.turn(l.decision(i, session.AskPerson), &session.ApprovalAsked{
		ID: "a1", CallID: l.call(i), ToolName: "bash", Digest: "d", Mode: session.WorkspaceWrite, Basis: l.basis, Reason: "r",
	})
}

// held is what a call ran under that was decided workspace-write and loopback.
func held(change ...func(*session.Confinement)) *session.Effect {
	c := session.Confinement{
		Mode: session.WorkspaceWrite, Network: session.NetworkLoopback, Tier: session.TierLandlock, Enforcement: session.EnforcedPartly,
	}
	for _, fn := range change {
		fn(&c)
	}
	return &session.Effect{Denial: session.DenialNone, Sandbox: c}
}

// effected is a call that was decided and has the result of an effect.
func effected(decide func(*session.ToolDecision), change ...func(*session.Confinement)) func(*deployment) where {
	return func(d *deployment) where {
		r := d.root(toMode(session.WorkspaceWrite))
		r.open(want{"bash", "{}"})
		p := r.decision(0, session.Allow)
		p.Network = session.NetworkLoopback
		if decide != nil {
			decide(p)
		}
		r.turn(p)
		at := r.next
		end := r.result(0)
		end.Effect = held(change...)
		end.IsError = p.Verdict == session.Deny
		r.turn(end)
		return where{"5.4", r, at}
	}
}

func faultsOfEffect() []fault {
	none := func(c *session.Confinement) { c.Tier = session.TierNone }
	return []fault{
		{"a wider mode", "I5", effected(nil, func(c *session.Confinement) { c.Mode = session.DangerFullAccess }), nil},
		{"a wider network", "I5", effected(nil, func(c *session.Confinement) { c.Network = session.NetworkAllow }), nil},
		{"a network where none was decided", "I5", effected(func(p *session.ToolDecision) { p.Network = "" }), nil},
		{"no tier", "I5", effected(nil, none), nil},
		{"nothing enforced", "I5", effected(nil, func(c *session.Confinement) { c.Enforcement = session.NotEnforced }), nil},
		{"the facts of an effect under a denial", "I4", func(d *deployment) where {
			w := effected(func(p *session.ToolDecision) { p.Verdict, p.Network = session.Deny, "" })(d)
			w.clause = "5.1"
			return w
		}, nil},
		{"the facts of an effect that was not started", "I4", func(d *deployment) where {
			r := d.root()
			r.open(want{"bash", "{}"})
			at := r.next
			end := r.result(0)
			end.IsError, end.Code, end.Effect = true, session.CodeToolNotStarted, held()
			r.turn(end)
			return where{"5.1", r, at}
		}, nil},
	}
}

// What is as wide as its decision, or narrower, is none of verify's business: a
// host may hold more than it must, and full access is held by nothing.
func TestEffectsWithinTheirDecisionAreClean(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(*deployment) where{
		"as wide":             effected(nil),
		"a narrower mode":     effected(nil, func(c *session.Confinement) { c.Mode = session.ReadOnly }),
		"a narrower network":  effected(nil, func(c *session.Confinement) { c.Network = session.NetworkDeny }),
		"none, and none used": effected(func(p *session.ToolDecision) { p.Network = "" }, func(c *session.Confinement) { c.Network = session.NetworkDeny }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t)
			build(d)
			wantClean(t, runOn(t, d, verify.Options{}))
		})
	}
	t.Run("full access", func(t *testing.T) {
		t.Parallel()
		d := newDeployment(t)
		r := d.root(toMode(session.DangerFullAccess))
		r.open(want{"bash", "{}"})
		p := r.decision(0, session.Allow)
		p.Network = session.NetworkAllow
		r.turn(p)
		end := r.result(0)
		end.Effect = &session.Effect{Denial: session.DenialNone, Sandbox: session.Confinement{
			Mode: session.DangerFullAccess, Network: session.NetworkAllow, Tier: session.TierNone, Enforcement: session.NotEnforced,
		}}
		r.turn(end)
		wantClean(t, runOn(t, d, verify.Options{}))
	})
}

func faultsOfMirror() []fault {
	build := func(back session.Seq) func(*deployment) where {
		return func(d *deployment) where {
			r := d.root(toMode(session.ReadOnly))
			r.write(session.ClassPolicy, toMode(session.WorkspaceWrite))
			return where{"9", r, r.next - back}
		}
	}
	one := func(change func(*verify.Row)) func(rows) rows {
		return func(m rows) rows { change(&m[0]); return m }
	}
	return []fault{
		{"a stale policy", "I9", build(0), one(func(r *verify.Row) { r.Sandbox = session.ReadOnly })},
		{"a policy that the log never held", "I9", build(0), one(func(r *verify.Row) { r.Approval = session.Never })},
		{"an identity that the log never held", "I9", build(0), one(func(r *verify.Row) { r.Preset = session.PresetAuto })},
		{"another link", "I9", build(0), one(func(r *verify.Row) { r.Link[0]++ })},
		{"less than everything at rest", "I9", build(1), one(func(r *verify.Row) { r.Next-- })},
		{"half a first batch", "I9", build(3), one(func(r *verify.Row) { r.Next -= 3 })},
		{"no row at rest", "I9", build(4), func(rows) rows { return rows{} }},
		{"a row without a log", "I9", func(d *deployment) where {
			r := d.root()
			return where{"9", &log{header: header(session.ChildID(r.header.ID, "1.1.0"), "", "")}, 7}
		}, func(m rows) rows {
			return append(m, verify.Row{ID: session.ChildID(m[0].ID, "1.1.0"), Next: 7})
		}},
	}
}

func faultsOfLink() []fault {
	// flip changes a byte of a record that the log goes on from.
	flip := func(link bool) func(*deployment) where {
		return func(d *deployment) where {
			r := d.root()
			r.open(want{"write", "{}"})
			r.run(0)
			raw := &d.raws[1]
			at := session.Seq(2)
			raw.Body = bytes.Replace(raw.Body, []byte(`"w1"`), []byte(`"w2"`), 1)
			if link {
				lines := bytes.Split(bytes.TrimSuffix(raw.Body, []byte("\n")), []byte("\n"))
				before, _, _ := strings.Cut(raw.Headers[session.HeaderLinkName], " ")
				l, err := session.ParseLink(before)
				d.check(err)
				for _, line := range lines {
					l = session.EventLink(l, r.header.ID, session.ClassTurn, line)
				}
				raw.Headers[session.HeaderLinkName] = before + " " + l.String()
				at = 5
			}
			return where{"1.4", r, at}
		}
	}
	return []fault{
		{"bytes that were changed", "I11", flip(false), nil},
		{"bytes that were changed and linked again", "I11", flip(true), nil},
		{"bytes that were changed before a person's record", "I11", func(d *deployment) where {
			w := flip(false)(d)
			w.log.write(session.ClassPolicy, toMode(session.ReadOnly))
			return w
		}, nil},
		{"a person's record with other bytes", "I11", func(d *deployment) where {
			r := d.root()
			at := r.next
			raw := r.write(session.ClassPolicy, toMode(session.ReadOnly))
			raw.Body = bytes.Replace(raw.Body, []byte("read-only"), []byte("workspace-write"), 1)
			return where{"1.4", r, at}
		}, nil},
		{"a child that does not link to its prefix", "I11", func(d *deployment) where {
			r := d.root()
			r.open()
			r.close()
			cut := r.next
			r.open(fork(""))
			return where{"1.3", r.delegate(0, birth{
				policy: []session.Payload{pin()}, cut: cut, prev: func(l *session.Link) { l[0]++ },
			}), cut}
		}, nil},
		{"a person's fork of a prefix that was changed", "I11", func(d *deployment) where {
			r := d.root()
			r.open()
			r.close()
			cut := r.next
			r.links[cut-1][0]++
			return where{"1.3", r.personsFork(cut), cut}
		}, nil},
		{"a spawn that links to something", "I11", func(d *deployment) where {
			b := batch(pin())
			b.prev = func(l *session.Link) { l[0]++ }
			return where{"1.3", child(d, nil, spawn(""), b), 0}
		}, nil},
	}
}

func faultsOfWidth() []fault {
	auto := []session.Payload{toPreset(session.PresetAuto), toMode(session.DangerFullAccess), toApproval(session.Never)}
	return []fault{
		{"a wider mode", "I12", func(d *deployment) where {
			return where{"4.2", child(d, switched(session.ReadOnly), spawn(""), batch(mode(session.WorkspaceWrite), pin())), 0}
		}, nil},
		{"a live default under a switched parent", "I12", func(d *deployment) where {
			return where{"4.2", child(d, switched(session.ReadOnly), spawn(""), batch(pin())), 0}
		}, nil},
		{"a wider mode in the second generation", "I12", func(d *deployment) where {
			c := child(d, switched(session.ReadOnly), spawn(""), batch(mode(session.ReadOnly), pin()))
			c.open(spawn(""))
			return where{"4.2", c.delegate(0, batch(mode(session.DangerFullAccess), pin())), 0}
		}, nil},
		{"a fork that keeps its stale prefix", "I12", func(d *deployment) where {
			r := d.root(toMode(session.WorkspaceWrite))
			r.open()
			r.close()
			cut := r.next
			r.write(session.ClassPolicy, toMode(session.ReadOnly))
			r.open(fork(""))
			return where{"4.2", r.delegate(0, birth{policy: []session.Payload{pin()}, cut: cut}), cut}
		}, nil},
		{"no pin", "I12", func(d *deployment) where { return where{"4.2", child(d, nil, spawn(""), birth{}), 0} }, nil},
		{"a child that was unpinned", "I12", func(d *deployment) where {
			c := child(d, nil, spawn(""), batch(pin()))
			at := c.next
			c.write(session.ClassPolicy, toApproval(session.Ask))
			return where{"4.10", c, at}
		}, nil},
		{"a tool that the grandparent's call stopped", "I12", func(d *deployment) where {
			b := batch(pin())
			b.filter = &session.ToolFilter{Deny: []string{"bash"}}
			c := child(d, nil, spawn(`,"tools":{"deny":["bash"]}`), b)
			c.open(spawn(""))
			return where{"4.11", c.delegate(0, batch(pin())), 0}
		}, nil},
		{"a call of a tool that the filter stops", "I12", func(d *deployment) where {
			b := batch(pin())
			b.filter = &session.ToolFilter{Deny: []string{"bash"}}
			c := child(d, nil, spawn(`,"tools":{"deny":["bash"]}`), b)
			c.open(want{"bash", "{}"})
			at := c.next
			c.turn(c.decision(0, session.Allow))
			return where{"4.11", c, at}
		}, nil},
		{"a person's fork without its source's filter", "I12", func(d *deployment) where {
			b := batch(pin())
			b.filter = &session.ToolFilter{Deny: []string{"bash"}}
			c := child(d, nil, spawn(`,"tools":{"deny":["bash"]}`), b)
			c.filter = nil
			return where{"1.8", c.personsFork(c.next), c.next}
		}, nil},
		{"a person's fork with policy of its own", "I12", func(d *deployment) where {
			r := d.root(toMode(session.ReadOnly))
			return where{"1.8", r.personsFork(r.next, toMode(session.DangerFullAccess)), r.next}
		}, nil},
		{"an auto parent's child that loses its review", "I12", func(d *deployment) where {
			return where{"6.1", child(d, auto, spawn(""), batch(mode(session.DangerFullAccess), pin(), identity(session.PresetFullAccess))), 0}
		}, nil},
		{"an auto child's call without a review", "I12", func(d *deployment) where {
			c := child(d, auto, spawn(""), batch(mode(session.DangerFullAccess), pin(), identity(session.PresetAuto)))
			c.open(want{"bash", "{}"})
			at := c.next
			c.turn(c.decision(0, session.Allow))
			return where{"6.1", c, at}
		}, nil},
		{"a grant in a pinned child", "I12", func(d *deployment) where {
			c := child(d, nil, spawn(""), batch(pin()))
			c.open(want{"bash", "{}"})
			g := c.decision(0, session.Allow)
			g.Grant = "a1"
			at := c.next
			c.turn(g)
			return where{"5.6", c, at}
		}, nil},
	}
}

func faultsOfLog() []fault {
	return []fault{
		{"a gap", verify.Log, func(d *deployment) where {
			r := d.root()
			r.write(session.ClassPolicy, toMode(session.ReadOnly))
			r.write(session.ClassPolicy, toMode(session.WorkspaceWrite))
			d.raws = append(d.raws[:1:1], d.raws[2:]...)
			return where{"1.4", r, 2}
		}, nil},
		{"a loss", verify.Log, func(d *deployment) where {
			r := d.root()
			r.open()
			r.close()
			d.raws = append(d.raws[:1:1], d.raws[2:]...)
			d.raws[1].Hole = true
			return where{"1.4 (loss)", r, 2}
		}, nil},
		{"a foreign value in a person's record", verify.Log, func(d *deployment) where {
			r := d.root()
			raw := r.smuggle(toMode(session.ReadOnly))
			raw.Address.Class = session.ClassPolicy
			raw.Body = bytes.Replace(raw.Body, []byte("read-only"), []byte("read-some"), 1)
			line := bytes.TrimSuffix(raw.Body, []byte("\n"))
			raw.Headers[session.HeaderLinkName] = r.link.String() + " " + session.EventLink(r.link, r.header.ID, session.ClassPolicy, line).String()
			return where{"1.5", r, 2}
		}, nil},
		{"a smuggled policy event that the log goes on from", verify.Log, func(d *deployment) where {
			r := d.root()
			r.open()
			at := r.next
			raw := r.smuggle(toMode(session.DangerFullAccess))
			r.next++
			_, after, _ := strings.Cut(raw.Headers[session.HeaderLinkName], " ")
			d.check(r.link.UnmarshalText([]byte(after)))
			r.close()
			return where{"1.5", r, at}
		}, nil},
		{"two histories of a person's", verify.Log, func(d *deployment) where {
			r := d.root()
			r.orphan(session.ClassPolicy, toMode(session.ReadOnly))
			r.write(session.ClassPolicy, toMode(session.DangerFullAccess))
			return where{"1.4", r, 3}
		}, nil},
		{"a second outcome of a question", verify.Log, func(d *deployment) where {
			r := d.root()
			r.open(want{"bash", "{}"})
			r.ask(0)
			r.write(session.ClassInbox, &session.ApprovalDecided{ID: "a1", Outcome: session.Rejected, By: ada()})
			at := r.next
			r.write(session.ClassInbox, &session.Expired{ID: "x", Ask: "a1", By: ada()})
			return where{"5.7", r, at}
		}, nil},
		{"a question without an outcome", verify.Log, func(d *deployment) where {
			r := d.root()
			r.open(want{"bash", "{}"})
			r.ask(0)
			end := r.result(0)
			end.IsError, end.Code = true, session.CodeToolNotStarted
			at := r.next
			r.turn(end)
			return where{"5.7", r, at}
		}, nil},
		{"a turn in a turn", verify.Log, func(d *deployment) where {
			r := d.root()
			r.open()
			at := r.next
			r.turn(&session.TurnStart{Turn: 2})
			return where{"1.4", r, at}
		}, nil},
	}
}

// TestFaultIsMissedWithoutItsCheck builds verify without one check at a time and
// wants TestFault to fail on that check's faults and on no others.
func TestFaultIsMissedWithoutItsCheck(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"i1", "i2", "i3", "i4", "i5", "i6", "i7", "i9", "i11", "i12"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-tags", "mutate_verify_"+id, "-run", "^TestFault$", ".").CombinedOutput()
			if err == nil {
				t.Fatalf("without its check every fault is still found:\n%s", out)
			}
			for line := range strings.Lines(string(out)) {
				name, failed := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: TestFault/")
				if failed && !strings.HasPrefix(name, strings.ToUpper(id)+"_") {
					t.Errorf("another check missed its fault: %s", line)
				}
			}
			if !strings.Contains(string(out), "--- FAIL: TestFault/"+strings.ToUpper(id)+"_") {
				t.Errorf("no fault of the check was missed:\n%s", out)
			}
		})
	}
}
