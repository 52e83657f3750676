package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

func newPolicy(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Read, switch and explain a session's policy",
		Long: `A session has three knobs: the sandbox mode, the approval policy and the preset.
Each is what the last event in its log says, else the deployment's default, which
is live. A child inherits explicit values with its first record; what was pinned
for it cannot be widened from inside.`,
		Example: `  entail policy get 00SESSION
  entail policy set 00SESSION --sandbox read-only
  entail policy explain 00SESSION`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyGet(a), newPolicySet(a), newPolicyExplain(a))
	return cmd
}

func newPolicyGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "get SESSION",
		Short:   "Show the policy that a session's next call is decided under",
		Long:    "Show the policy that a session's next call is decided under: overrides of its log over the deployment's defaults.",
		Example: "  entail policy get 00SESSION",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			return a.with(func(d *deployment) error {
				var out client.PolicyReply
				if err := d.Call(cmd.Context(), client.MethodPolicyGet, client.SessionRequest{Head: d.head, ID: id}, &out); err != nil {
					return err
				}
				return a.policy(out)
			})
		},
	}
}

func (a *app) policy(p client.PolicyReply) error {
	return a.printer.value(p, func() {
		a.printer.line("sandbox    %s\napprovals  %s\npreset     %s", p.Sandbox, p.Approvals, p.Preset)
		if p.Note != "" {
			a.printer.line("%s", p.Note)
		}
	})
}

func newPolicySet(a *app) *cobra.Command {
	var in client.PolicySetRequest
	var preset string
	cmd := &cobra.Command{
		Use:   "set SESSION --sandbox MODE | --approvals POLICY | --preset NAME",
		Short: "Switch one knob of a session",
		Long: `Switch one knob of a session. The command returns once the switch was folded from
the log; every call decided after that is decided under it. Children that run
already keep what they started with.`,
		Example: `  entail policy set 00SESSION --sandbox workspace-write
  entail policy set 00SESSION --preset read-only`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			set := 0
			for _, name := range []string{"sandbox", "approvals", "preset"} {
				if cmd.Flags().Changed(name) {
					set++
				}
			}
			if set != 1 {
				return usagef("give exactly one of --sandbox, --approvals and --preset")
			}
			in.ID, in.Preset = id, session.Preset(preset)
			return a.with(func(d *deployment) error {
				in.Head = d.head
				var out client.PolicyReply
				if err := d.Call(cmd.Context(), client.MethodPolicySet, in, &out); err != nil {
					return err
				}
				return a.policy(out)
			})
		},
	}
	flags := cmd.Flags()
	flags.Var(newChoice(&in.Sandbox, session.SandboxModes()...), "sandbox", "the sandbox mode")
	flags.Var(newChoice(&in.Approvals, session.Ask, session.Never), "approvals", "the approval policy")
	flags.StringVar(&preset, "preset", "", "a preset of the deployment's table")
	asGiven(flags, "sandbox", "approvals", "preset")
	return cmd
}

func newPolicyExplain(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "explain SESSION",
		Short: "Tell where each value of a session's policy came from",
		Long: `Tell, for each knob of a session, its value, the event that set it, and where that
came from, up the tree to a person's switch or to the deployment's default.`,
		Example: "  entail policy explain 00SESSION",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			return a.with(func(d *deployment) error {
				var out client.ExplainReply
				if err := d.Call(cmd.Context(), client.MethodPolicyExplain, client.SessionRequest{Head: d.head, ID: id}, &out); err != nil {
					return err
				}
				return a.printer.value(out, func() { a.explained(out.Values) })
			})
		},
	}
}

// explained writes values with where they came from, nearest first.
func (a *app) explained(values []policy.Explained) {
	for _, v := range values {
		a.printer.line("%s: %s", v.Knob, v.Value)
		for _, o := range v.Origins {
			a.printer.line("  %s", originText(o))
		}
	}
}

func originText(o policy.Origin) string {
	at := func(seq *session.Seq) string {
		if seq == nil {
			return ""
		}
		return fmt.Sprintf(" at seq %d", *seq)
	}
	switch o.From {
	case policy.FromDefault:
		return fmt.Sprintf("%s: %s is the deployment's default", o.Session, o.Value)
	case policy.FromInherited:
		return fmt.Sprintf("%s: %s inherited%s, handed down%s of its parent", o.Session, o.Value, at(o.Seq), at(o.At))
	case policy.FromSwitch:
		by := "somebody"
		if o.By != nil {
			by = string(o.By.Kind) + " " + o.By.ID
		}
		return fmt.Sprintf("%s: %s switched here%s by %s", o.Session, o.Value, at(o.Seq), by)
	case policy.FromDerived:
		return fmt.Sprintf("%s: %s follows from the other two", o.Session, o.Value)
	}
	return fmt.Sprintf("%s: %s", o.Session, o.Value)
}

func newExplain(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "explain SESSION CALL",
		Short: "Tell why a call was allowed or denied",
		Long: `Tell what was decided of one call of a session, by which stage and on what basis,
how it ended, what held it, and where each value of the session's policy came from. A call is
named by turn, step and index, as session tail shows it.`,
		Example: "  entail explain 00SESSION 1.2.0",
		Args:    arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			call, err := callID(args[1])
			if err != nil {
				return err
			}
			return a.with(func(d *deployment) error {
				var out client.CallReply
				if err := d.Call(cmd.Context(), client.MethodCallExplain, client.CallRequest{Head: d.head, ID: id, Call: call}, &out); err != nil {
					return err
				}
				return a.printer.value(out, func() { a.call(out) })
			})
		},
	}
}

func (a *app) call(c client.CallReply) {
	a.printer.line("call %s: %s %s", c.Call.CallID, c.Call.Name, brief(c.Call.Arguments))
	for _, d := range c.Decisions {
		a.printer.line("decided: %s", decisionText(d))
		a.printer.line("  on sandbox %s, approvals %s, preset %s, settings revision %d",
			groundText(d.Basis.Sandbox), groundText(d.Basis.Approval), groundText(d.Basis.Preset), d.Revision)
	}
	if len(c.Decisions) == 0 {
		a.printer.line("not decided yet")
	}
	if c.Result != nil {
		a.printer.line("result: %s", resultText(*c.Result))
		if c.Result.Effect != nil {
			a.printer.line("  held by %s", heldText(c.Result.Effect.Sandbox))
		}
	}
	if s := c.Settled; s != nil {
		a.printer.line("settled: %s at seq %d%s", s.Execution, s.Seq, because(s.By, ""))
	}
	a.explained(c.Values)
}

func groundText(g session.Ground) string {
	switch {
	case g.Value == "":
		return "none"
	case g.Seq == nil:
		return g.Value + " (default)"
	}
	return fmt.Sprintf("%s (seq %d)", g.Value, *g.Seq)
}
