package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/session"
)

// handed writes what a capture hands down as the events of a child's first batch;
// an empty value is none.
func handed(m session.SandboxMode, pin bool, name session.Preset) []session.Payload {
	var out []session.Payload
	if m != "" {
		out = append(out, &session.SandboxSwitch{Mode: m, Source: session.SourceDelegation})
	}
	if pin {
		out = append(out, &session.ApprovalSwitch{Policy: session.Never, Source: session.SourceDelegation})
	}
	if name != "" {
		out = append(out, &session.PresetSwitch{Preset: name})
	}
	return out
}

// TestCapture holds Capture to SPEC 4.2 and its order and tags to 4.3.
func TestCapture(t *testing.T) {
	t.Parallel()
	full := defaults(session.DangerFullAccess, session.Never)
	for name, tt := range map[string]struct {
		change []func(*policy.Settings)
		flags  []session.Payload
		want   []session.Payload
	}{
		"nothing switched: the pin alone":            {want: handed("", true, "")},
		"a wider default is not handed down":         {change: set(defaults(session.WorkspaceWrite, session.Ask)), want: handed("", true, "")},
		"an explicit mode":                           {flags: knobs(session.ReadOnly, ""), want: handed(session.ReadOnly, true, "")},
		"an explicit mode that equals the default":   {change: set(defaults(session.WorkspaceWrite, session.Ask)), flags: knobs(session.WorkspaceWrite, ""), want: handed(session.WorkspaceWrite, true, "")},
		"the pin, the parent asks":                   {flags: knobs("", session.Ask), want: handed("", true, "")},
		"the pin, the parent never asks":             {flags: knobs("", session.Never), want: handed("", true, "")},
		"the pin, by default never":                  {change: set(defaults(session.ReadOnly, session.Never)), want: handed("", true, "")},
		"auto":                                       {flags: named(session.PresetAuto, session.DangerFullAccess, session.Never), want: handed(session.DangerFullAccess, true, session.PresetAuto)},
		"Full access":                                {flags: named(session.PresetFullAccess, session.DangerFullAccess, session.Never), want: handed(session.DangerFullAccess, true, session.PresetFullAccess)},
		"Full access, derived from switches":         {flags: knobs(session.DangerFullAccess, session.Never), want: handed(session.DangerFullAccess, true, session.PresetFullAccess)},
		"Full access, derived from defaults":         {change: set(full), want: handed("", true, session.PresetFullAccess)},
		"auto recorded over defaults that fit":       {change: set(full), flags: named(session.PresetAuto, "", ""), want: handed("", true, session.PresetAuto)},
		"auto recorded, its bundle no longer fits":   {flags: named(session.PresetAuto, session.WorkspaceWrite, session.Never), want: handed(session.WorkspaceWrite, true, "")},
		"auto recorded, its approval no longer fits": {flags: named(session.PresetAuto, session.DangerFullAccess, session.Ask), want: handed(session.DangerFullAccess, true, "")},
		"workspace-write recorded":                   {flags: named(session.PresetWorkspaceWrite, session.WorkspaceWrite, session.Ask), want: handed(session.WorkspaceWrite, true, "")},
		"read-only recorded":                         {flags: named(session.PresetReadOnly, "", ""), want: handed("", true, "")},
		"a row of its own with the shared bundle":    {change: set(policytest.Row("mine", session.DangerFullAccess, session.Never, 4)), flags: named("mine", session.DangerFullAccess, session.Never), want: handed(session.DangerFullAccess, true, "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := policy.Capture(newRoot(t, tt.flags...).State, deploy(t, tt.change...), policy.Wish{}, tools)
			if err != nil {
				t.Fatalf("Capture: %v", err)
			}
			same(t, "events", got.Events(), tt.want)
			if got.Filter != nil {
				t.Errorf("filter %+v from nowhere", got.Filter)
			}
		})
	}
}

// TestCaptureNeverAGrant: neither a grant that is being used nor the wider mode it
// gave is handed down (SPEC 4.2, 5.6).
func TestCaptureNeverAGrant(t *testing.T) {
	t.Parallel()
	d, l := deploy(t), newRoot(t)
	id := l.Open("bash")
	call := policy.Call{
		ID: id, Tool: "bash", Effect: true, Digest: "d", Escalate: session.DangerFullAccess, Justification: "needed",
	}
	grant(t, l, d, call)
	if c, ok := l.State.Call(id); !ok || c.Mode != session.DangerFullAccess {
		t.Fatalf("the granted call runs under %q", c.Mode)
	}
	got, err := policy.Capture(l.State, d, policy.Wish{}, tools)
	if err != nil {
		t.Fatalf("Capture: %v", err)
	}
	same(t, "events", got.Events(), handed("", true, ""))
}

// TestGrantIsUsedOnce: not even the call that used its grant is allowed by it
// again (SPEC 5.6).
func TestGrantIsUsedOnce(t *testing.T) {
	t.Parallel()
	d, l := deploy(t), newRoot(t)
	call := policy.Call{
		ID: l.Open("bash"), Tool: "bash", Effect: true, Digest: "d", Escalate: session.DangerFullAccess, Justification: "needed",
	}
	grant(t, l, d, call)
	dec, err := policy.Decide(l.State, d, call, tools)
	if err != nil {
		t.Fatalf("Decide: %v", err)
	}
	if _, ok := dec.(policy.Question); !ok {
		t.Errorf("decided %+v, want a new question", dec.Record())
	}
}

// grant asks for a call, answers that it is allowed once, and decides it.
func grant(t *testing.T, l *log, d policy.Deployment, c policy.Call) {
	t.Helper()
	dec, err := policy.Decide(l.State, d, c, tools)
	if err != nil {
		t.Fatalf("decide: %v", err)
	}
	q, ok := dec.(policy.Question)
	if !ok {
		t.Fatalf("%+v is no question", dec)
	}
	rec, ask := q.Record(), q.Ask()
	l.Add(session.ClassTurn, &rec, &ask)
	l.Add(session.ClassInbox, &session.ApprovalDecided{ID: ask.ID, Outcome: session.AllowedOnce, By: &alice})
	if dec, err = policy.Decide(l.State, d, c, tools); err != nil {
		t.Fatalf("decide again: %v", err)
	}
	rec = dec.Record()
	if rec.Grant == "" {
		t.Fatalf("%+v uses no grant", rec)
	}
	l.Add(session.ClassTurn, &rec)
}

// TestNarrow holds what a delegation asks for to SPEC 4.11.
func TestNarrow(t *testing.T) {
	t.Parallel()
	full := defaults(session.DangerFullAccess, session.Never)
	auto := named(session.PresetAuto, session.DangerFullAccess, session.Never)
	for name, tt := range map[string]struct {
		change []func(*policy.Settings)
		flags  []session.Payload
		mode   session.SandboxMode
		want   []session.Payload
		code   policy.Code
	}{
		"below an override, in its place":       {flags: knobs(session.WorkspaceWrite, ""), mode: session.ReadOnly, want: handed(session.ReadOnly, true, "")},
		"below a default":                       {change: set(defaults(session.WorkspaceWrite, session.Ask)), mode: session.ReadOnly, want: handed(session.ReadOnly, true, "")},
		"below Full access: no identity":        {flags: named(session.PresetFullAccess, session.DangerFullAccess, session.Never), mode: session.WorkspaceWrite, want: handed(session.WorkspaceWrite, true, "")},
		"below Full access by default":          {change: set(full), mode: session.ReadOnly, want: handed(session.ReadOnly, true, "")},
		"the mode it has is no wish":            {flags: knobs(session.WorkspaceWrite, ""), mode: session.WorkspaceWrite, want: handed(session.WorkspaceWrite, true, "")},
		"the default it has is not written":     {change: set(defaults(session.WorkspaceWrite, session.Ask)), mode: session.WorkspaceWrite, want: handed("", true, "")},
		"the mode it has keeps the identity":    {flags: auto, mode: session.DangerFullAccess, want: handed(session.DangerFullAccess, true, session.PresetAuto)},
		"wider than an override":                {change: set(full), flags: knobs(session.ReadOnly, ""), mode: session.WorkspaceWrite, code: policy.CodeWider},
		"wider than a default":                  {mode: session.DangerFullAccess, code: policy.CodeWider},
		"unknown":                               {flags: auto, mode: "none", code: policy.CodeUnknownMode},
		"in another case":                       {flags: auto, mode: "READ-ONLY", code: policy.CodeUnknownMode},
		"under auto":                            {flags: auto, mode: session.ReadOnly, code: policy.CodeUnderAuto},
		"under auto without a reviewer":         {flags: auto, mode: session.WorkspaceWrite, code: policy.CodeUnderAuto},
		"under auto that is not current":        {flags: named(session.PresetAuto, session.WorkspaceWrite, session.Never), mode: session.ReadOnly, want: handed(session.ReadOnly, true, "")},
		"sandbox left out":                      {change: set(full, compose(false, true, true)), mode: session.ReadOnly, code: policy.CodeLeftOut},
		"sandbox left out, the mode it has":     {change: set(full, compose(false, true, true)), mode: session.DangerFullAccess, want: handed("", true, session.PresetFullAccess)},
		"approvals left out":                    {change: set(full, compose(true, false, true)), mode: session.ReadOnly, want: handed(session.ReadOnly, false, "")},
		"under auto, approvals and presets out": {change: set(compose(true, false, false)), flags: named(session.PresetAuto, session.DangerFullAccess, ""), mode: session.ReadOnly, code: policy.CodeUnderAuto},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := policy.Capture(newRoot(t, tt.flags...).State, deploy(t, tt.change...), policy.Wish{Sandbox: tt.mode}, tools)
			if tt.code != "" {
				refused(t, err, tt.code, string(tt.mode))
				same(t, "what a refusal hands down", got, policy.Captured{})
				return
			}
			if err != nil {
				t.Fatalf("Capture: %v", err)
			}
			same(t, "events", got.Events(), tt.want)
		})
	}
}

func filter(allow []string, deny ...string) *session.ToolFilter {
	f := &session.ToolFilter{Deny: deny}
	if allow != nil {
		f.Allow = &allow
	}
	return f
}

// TestFilterBindsSubtree: a descriptor holds the intersection of all filters above
// it, as values (SPEC 4.11), also where a generation asks for none.
func TestFilterBindsSubtree(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		asked [3]*session.ToolFilter
		want  [3]*session.ToolFilter
	}{
		"no filter": {},
		"set once": {
			asked: [3]*session.ToolFilter{filter(nil, "bash")},
			want:  [3]*session.ToolFilter{filter(nil, "bash"), filter(nil, "bash"), filter(nil, "bash")},
		},
		"denials add up": {
			asked: [3]*session.ToolFilter{filter(nil, "bash"), filter(nil, "write", "bash"), filter(nil, "edit")},
			want:  [3]*session.ToolFilter{filter(nil, "bash"), filter(nil, "bash", "write"), filter(nil, "bash", "edit", "write")},
		},
		"what is allowed shrinks": {
			asked: [3]*session.ToolFilter{filter([]string{"write", "read", "delegate"}), filter([]string{"delegate", "read", "bash"}), filter([]string{"bash"})},
			want:  [3]*session.ToolFilter{filter([]string{"delegate", "read", "write"}), filter([]string{"delegate", "read"}), filter([]string{})},
		},
		"allowing after denying": {
			asked: [3]*session.ToolFilter{filter(nil, "bash"), filter([]string{"bash", "delegate"}), nil},
			want:  [3]*session.ToolFilter{filter(nil, "bash"), filter([]string{"bash", "delegate"}, "bash"), filter([]string{"bash", "delegate"}, "bash")},
		},
		"a filter of nothing is none": {
			asked: [3]*session.ToolFilter{filter(nil), filter(nil, "edit"), filter(nil)},
			want:  [3]*session.ToolFilter{nil, filter(nil, "edit"), filter(nil, "edit")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, l := deploy(t), newRoot(t)
			for i, asked := range tt.asked {
				kind := [3]session.Kind{session.Fork, session.Spawn, session.Fork}[i]
				l = l.MustDelegate(d, child{Kind: kind, Wish: policy.Wish{Filter: asked}})
				if diff := cmp.Diff(tt.want[i], l.State.Descriptor.ToolFilter); diff != "" {
					t.Errorf("generation %d (-want +got):\n%s", i+1, diff)
				}
			}
		})
	}
}

// TestFilterDoesNotShare: what a filter came from can change later without
// changing the filter.
func TestFilterDoesNotShare(t *testing.T) {
	t.Parallel()
	own := filter([]string{"read", "bash"}, "edit")
	got, err := policy.Capture(newRoot(t).State, deploy(t), policy.Wish{Filter: own}, tools)
	if err != nil {
		t.Fatalf("Capture: %v", err)
	}
	(*own.Allow)[0], own.Deny[0] = "write", "write"
	same(t, "filter", got.Filter, filter([]string{"bash", "read"}, "edit"))
}

func TestFilterUnknownTool(t *testing.T) {
	t.Parallel()
	for _, f := range []*session.ToolFilter{filter(nil, "rm"), filter([]string{"rm"}), filter([]string{"read"}, "rm"), filter(nil, "Bash"), filter(nil, "")} {
		_, err := policy.Capture(newRoot(t).State, deploy(t), policy.Wish{Filter: f}, tools)
		refused(t, err, policy.CodeUnknownTool, "unknown tool")
	}
}

// TestFiltered is the filter's meaning (SPEC 4.11): allowed by the one list, where
// there is one, and not denied by the other.
func TestFiltered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		filter *session.ToolFilter
		want   bool
	}{
		"none":               {nil, false},
		"allowed":            {filter([]string{"bash"}), false},
		"not allowed":        {filter([]string{"read"}), true},
		"nothing is allowed": {filter([]string{}), true},
		"denied":             {filter(nil, "bash"), true},
		"another is denied":  {filter(nil, "read"), false},
		"allowed and denied": {filter([]string{"bash"}, "bash"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := policy.Filtered(tt.filter, "bash"); got != tt.want {
				t.Errorf("Filtered = %v, want %v", got, tt.want)
			}
		})
	}
}
