package main

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/client"
)

func newConfig(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Read and change the deployment's settings, and see this command's own",
		Long: `The deployment's settings are one value for the whole of it: defaults, presets,
composition, caps, reviewer, confinement, lease. A change is in force everywhere when set
returns, and every revision is kept.

What this command itself was configured with, by flags, ENTAIL_* and entail.yaml,
is shown by effective.`,
		Example: `  entail config get
  entail config set defaults.sandbox workspace-write
  entail config effective`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigGet(a), newConfigSet(a), newConfigHistory(a), newConfigEffective(a))
	return cmd
}

func newConfigGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "get [PATH]",
		Short:   "Show the deployment's settings, or one of them",
		Long:    "Show the deployment's settings with their revision, or the one that a path names, such as defaults.sandbox.",
		Example: "  entail config get\n  entail config get caps.depth",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(d *deployment) error {
				var out client.ConfigReply
				if err := d.Call(cmd.Context(), client.MethodConfigGet, d.head, &out); err != nil {
					return err
				}
				if len(args) == 0 {
					return a.printer.value(out, func() { a.indented(out) })
				}
				text, err := json.Marshal(out.Settings)
				if err != nil {
					return err
				}
				value, ok := at(text, strings.Split(args[0], "."))
				if !ok {
					return usagef("unknown setting %q: `entail config get` lists them", args[0])
				}
				return a.printer.value(value, func() { a.indented(value) })
			})
		},
	}
}

// at finds a value by its path.
func at(text json.RawMessage, path []string) (json.RawMessage, bool) {
	for _, key := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) != nil {
			return nil, false
		}
		next, ok := object[key]
		if !ok {
			return nil, false
		}
		text = next
	}
	return text, true
}

// indented writes a value as JSON for people.
func (a *app) indented(v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return // what came as JSON is JSON
	}
	a.printer.line("%s", text)
}

func newConfigSet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "set PATH VALUE",
		Short: "Change one of the deployment's settings",
		Long: `Change one of the deployment's settings. The value is JSON, or a word. The command
returns when every live worker has confirmed the change or has lost its lease, and
names those that have not: after it no call is decided under the old value. Workers
read confinement.uids when they start.`,
		Example: `  entail config set defaults.sandbox workspace-write
  entail config set caps.depth 2
  entail config set confinement.network.workspace-write deny`,
		Args: arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			value := json.RawMessage(args[1])
			if !json.Valid(value) {
				quoted, err := json.Marshal(args[1])
				if err != nil {
					return usagef("value %q: %w", args[1], err)
				}
				value = quoted
			}
			return a.with(func(d *deployment) error {
				var out client.ConfigReply
				in := client.ConfigSetRequest{Head: d.head, Path: args[0], Value: value}
				if err := d.Call(cmd.Context(), client.MethodConfigSet, in, &out); err != nil {
					return err
				}
				for _, w := range out.Stragglers {
					a.printer.warn("worker %s has not confirmed revision %d and decides nothing until it has", w, out.Revision)
				}
				return a.printer.value(out, func() { a.printer.line("revision %d", out.Revision) })
			})
		},
	}
}

func newConfigHistory(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "history",
		Short:   "Show every revision of the deployment's settings",
		Long:    "Show every kept revision of the deployment's settings, oldest first: when, by whom, and what it was then.",
		Example: "  entail config history",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(d *deployment) error {
				var out client.ConfigHistoryReply
				if err := d.Call(cmd.Context(), client.MethodConfigHistory, d.head, &out); err != nil {
					return err
				}
				for _, c := range out.Changes {
					if err := a.printer.value(c, func() {
						a.printer.line("%6d  %s  %s %s  sandbox %s, approvals %s, reviewer %s, lease %v, network %s and %s, require %s", c.Revision,
							time.UnixMilli(c.Time).Format(time.RFC3339), c.By.Kind, c.By.ID,
							c.Settings.Defaults.Sandbox, c.Settings.Defaults.Approval, c.Settings.Reviewer, time.Duration(c.Settings.Lease),
							c.Settings.Confinement.Network.ReadOnly, c.Settings.Confinement.Network.WorkspaceWrite, c.Settings.Confinement.Require)
					}); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func newConfigEffective(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "effective",
		Short: "Show what this command line is configured with, and from where",
		Long: `Show what every flag that can be configured comes to and where the value is from:
a flag, the environment (ENTAIL_BASE_URL is base-url), entail.yaml, or the default.`,
		Example: "  ENTAIL_DIR=/tmp/e entail config effective",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range a.effective(cmd) {
				if err := a.printer.value(s, func() { a.printer.line("%-16s %-24q %s", s.Key, s.Value, s.Source) }); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
