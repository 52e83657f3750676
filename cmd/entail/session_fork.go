package main

import (
	"context"
	"fmt"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/session"
)

func newSessionFork(a *app) *cobra.Command {
	var label string
	cmd := &cobra.Command{
		Use:   "fork SESSION [PROMPT]",
		Short: "Start a session that goes on from another one's log",
		Long: `Start a session of the same tree whose log begins with everything that is in the
log of another one. It is nobody's child: its policy is what that log folds to, and
a person may change it. A session with an open turn cannot be forked.`,
		Example: `  entail session fork 00SESSION "try it the other way"`,
		Args:    arguments(1, 64),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := sessionID(args[0])
			if err != nil {
				return err
			}
			in := client.ForkRequest{Source: source, Label: label}
			if len(args) > 1 {
				if in.Prompt, err = a.prompt(args[1:]); err != nil {
					return err
				}
			}
			if label != "" {
				if err := delegation.CheckLabel(label); err != nil {
					return usagef("--label: %w", err)
				}
			}
			if in.ID, err = session.ForkID(source.Root(), ulid.Make().String()); err != nil {
				return err
			}
			return a.with(func(d *deployment) error {
				in.Head = d.head
				var out client.CreatedReply
				if err := d.Call(cmd.Context(), client.MethodFork, in, &out); err != nil {
					return err
				}
				return a.printer.value(out, func() { a.printer.line("%s", out.ID) })
			})
		},
	}
	cmd.Flags().StringVar(&label, "label", "", "a short name for the fork")
	return cmd
}

func newSessionRelease(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "release SESSION --reason TEXT",
		Short: "Let a session go on that was stopped or quarantined",
		Long: `Let a session go on that was stopped because its log is damaged. What stands after
its last good record is skipped for ever, by an entry in the log that holds the
reason, and the session comes back read-only if a policy event may be among it.

Let a session go on that is quarantined because workers died on it, for instance
once they run a build that does not. Nothing is skipped: it is tried again where
they died.`,
		Example: `  entail session release 00SESSION --reason "half a record after the power cut"`,
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			if reason == "" {
				return usagef("a release needs a reason: give it with --reason")
			}
			return a.with(func(d *deployment) error {
				var out client.ReleaseReply
				in := client.ReleaseRequest{Head: d.head, ID: id, Reason: reason}
				if err := d.Call(cmd.Context(), client.MethodRelease, in, &out); err != nil {
					return err
				}
				return a.printer.value(out, func() {
					if len(out.Skipped) == 0 {
						a.printer.line("released; it is tried again where it stood")
						return
					}
					a.printer.line("released; skipped stream sequences %v", out.Skipped)
				})
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why it may go on; stands in the log")
	return cmd
}

func newSend(a *app) *cobra.Command {
	var key func() string
	cmd := &cobra.Command{
		Use:   "send SESSION MESSAGE",
		Short: "Send a message to a session",
		Long: `Put a message into a session's inbox. It is durable when the command returns; the
session takes it at its next step, or starts a turn for it. A child that is idle goes on
with its next turn.

With --id the message has that id: sent again it is the same message, so a script may
repeat the command until it succeeds. Another message under the id is refused.`,
		Example: `  entail send 00SESSION "and now the tests"
  entail send 00SESSION --id build-17 "the build is done"
  entail send 00SESSION - < notes.txt`,
		Args: arguments(2, 64),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			text, err := a.prompt(args[1:])
			if err != nil {
				return err
			}
			return a.with(func(d *deployment) error {
				in := client.SendRequest{Head: d.head, ID: id, MessageID: key(), Content: text}
				if err := d.Call(cmd.Context(), client.MethodSend, in, nil); err != nil {
					return err
				}
				return a.printer.value(map[string]string{"messageId": in.MessageID}, func() { a.printer.line("sent") })
			})
		},
	}
	key = keyFlag(cmd)
	return cmd
}

// keyFlag adds the flag for the id under which a request is accepted, and returns what
// gives it: a new one if none is given. An empty one is given, and refused.
func keyFlag(cmd *cobra.Command) func() string {
	given := cmd.Flags().String("id", "", "id of the request, of your own making; the same again is done once (default: a new one)")
	return func() string {
		if cmd.Flags().Changed("id") {
			return *given
		}
		return requestID()
	}
}

func newInterrupt(a *app) *cobra.Command {
	return stopCommand(a, client.MethodInterrupt, &cobra.Command{
		Use:   "interrupt SESSION",
		Short: "Stop the open turn of a session",
		Long: `Stop the open turn of a session. Its inbox is kept, its children go on, and the
session can be continued with a message; messages that it has not read start its next
turn. Without an open turn nothing happens. With --id, the same interrupt again is of the
turn that it was of.`,
		Example: `  entail interrupt 00SESSION --reason "wrong branch"
  entail interrupt 00SESSION --id stop-17`,
	})
}

func newCancel(a *app) *cobra.Command {
	return stopCommand(a, client.MethodCancel, &cobra.Command{
		Use:   "cancel SESSION",
		Short: "End a session and everything it started",
		Long: `End a session and all its descendants for good. Pending messages are cancelled;
the logs stay and can be read and forked. From then on nothing starts, nothing is sent
and nothing is reported in that tree; children end before the sessions that started them.`,
		Example: `  entail cancel 00SESSION --reason "no longer needed"
  entail cancel 00SESSION --id cancel-17`,
	})
}

// stopCommand makes the two commands that stop something.
func stopCommand(a *app, method string, cmd *cobra.Command) *cobra.Command {
	var reason string
	cmd.Args = arguments(1, 1)
	cmd.Flags().StringVar(&reason, "reason", "", "why; stands in the log")
	key := keyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := sessionID(args[0])
		if err != nil {
			return err
		}
		return a.with(func(d *deployment) error {
			out, err := d.stop(cmd.Context(), method, id, key(), reason)
			if err != nil {
				return err
			}
			return a.printer.value(out, func() {
				if out.Note != "" {
					a.printer.line("%s", out.Note)
					return
				}
				a.printer.line("%s", fmt.Sprintf("%s is in the log of %s", cmd.Name(), id))
			})
		})
	}
	return cmd
}

func (d *deployment) stop(ctx context.Context, method string, id session.ID, key, reason string) (client.StopReply, error) {
	var out client.StopReply
	err := d.Call(ctx, method, client.StopRequest{Head: d.head, ID: id, RequestID: key, Reason: reason}, &out)
	return out, err
}
