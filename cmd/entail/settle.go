package main

import (
	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/client"
)

func newSettle(a *app) *cobra.Command {
	var executed, not bool
	var message string
	cmd := &cobra.Command{
		Use:   "settle SESSION CALL --executed|--not-executed",
		Short: "Say whether a call whose outcome is unknown was executed",
		Long: `A call that was running when its worker died is not run again: nobody knows how far it
came, and its result says so (TOOL_OUTCOME_UNKNOWN). Once you have looked, this tells
the session what you found, as a message of yours. The result stays what it is. A call
is settled once; entail explain shows it.`,
		Example: `  entail settle 00SESSION 1.2.0 --executed
  entail settle 00SESSION 1.2.0 --not-executed -m "the table is empty"`,
		Args: arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			call, err := callID(args[1])
			if err != nil {
				return err
			}
			if executed == not {
				return usagef("give --executed or --not-executed: what you found when you looked")
			}
			in := client.SettleRequest{ID: id, Call: call, Execution: client.Executed, Message: message}
			if not {
				in.Execution = client.NotExecuted
			}
			return a.with(func(d *deployment) error {
				in.Head = d.head
				var out client.SettleReply
				if err := d.Call(cmd.Context(), client.MethodCallSettle, in, &out); err != nil {
					return err
				}
				return a.printer.value(out, func() {
					before := ""
					if out.Existing {
						before = ", as it was before"
					}
					a.printer.line("call %s of %s is settled: %s%s", call, id, out.Execution, before)
				})
			})
		},
	}
	cmd.Flags().BoolVar(&executed, "executed", false, "it had its effect")
	cmd.Flags().BoolVar(&not, "not-executed", false, "it had none")
	cmd.Flags().StringVarP(&message, "message", "m", "", "what else to tell the agent")
	return cmd
}
