package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/internal/bench"
)

func newBench(a *app) *cobra.Command {
	var only string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what Entail costs on top of what it stands on",
		Long: `Measure ratios of Entail's rate to that of the raw thing below it, each the median of
five pairs, raw and ours in turn. The groups, as --only takes them:

` + bench.About() + `
It runs brokers of its own in temporary directories, for some minutes. Rates depend
on the machine; the targets speak of ratios, but for a few times and a size. The
command fails when a target is missed.`,
		Example: `  entail bench
  entail bench --only append,r3 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var groups []string
			if cmd.Flags().Changed("only") {
				groups = strings.Split(only, ",")
			}
			for _, g := range groups {
				if !slices.Contains(bench.Groups(), g) {
					return usagef("--only: there is no group %q: give some of %s, joined by commas", g, strings.Join(bench.Groups(), ", "))
				}
			}
			missed := 0
			err := bench.Run(cmd.Context(), groups, func(f bench.Figure) {
				if !f.OK {
					missed++ // or it could not be measured
				}
				_ = a.printer.value(f, func() {
					if f.Missing != "" {
						a.printer.line("%-64s %s: %s", f.Name, a.printer.paint(red, "NOT MEASURED"), f.Missing)
						return
					}
					word := a.printer.paint(green, "ok")
					if !f.OK {
						word = a.printer.paint(red, "missed")
					}
					bound := "target"
					if f.AtMost {
						bound = "at most"
					}
					target := fmt.Sprintf("(%s %.2f) %s", bound, f.Target, word)
					if f.Target == 0 {
						target = "(a report)"
					}
					a.printer.line("%-64s %5.2f %s   raw %.0f, ours %.0f, n %d", f.Name, f.Ratio, target, f.Raw, f.Ours, f.N)
				})
			})
			if err == nil && missed > 0 {
				err = errors.New("a target was missed, or not measured: is the machine busy with something else?")
			}
			return err
		},
	}
	cmd.Flags().StringVar(&only, "only", "", "measure some `groups` alone, joined by commas: "+strings.Join(bench.Groups(), ", "))
	return cmd
}
