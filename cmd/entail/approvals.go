package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

func newApprovals(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "List and show the questions that wait for a person",
		Long: `A call may ask for a wider sandbox mode than its session has. Under approval policy
"ask" the question parks the turn until somebody answers it, with entail approve or
entail deny, or its time is over (approvals.expireAfter, 24 h unless set). A grant
runs exactly that call, once. Sessions that were started with --surface none have
nobody to ask, and children are never allowed to.`,
		Example: `  entail approvals ls
  entail approvals show 00SESSION`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newApprovalsLs(a), newApprovalsShow(a))
	return cmd
}

func newApprovalsLs(a *app) *cobra.Command {
	var root, after string
	var limit int
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the questions that wait",
		Long: `List the questions that wait for a person, over the whole deployment or one tree: the
session, the question, the mode that is asked for, what the call is, and until when.`,
		Example: `  entail approvals ls
  entail approvals ls --root 00SESSION -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := client.ApprovalsRequest{Limit: limit}
			for text, into := range map[*string]*session.ID{&root: &in.Root, &after: &in.AfterID} {
				if *text == "" {
					continue
				}
				id, err := sessionID(*text)
				if err != nil {
					return err
				}
				*into = id
			}
			return a.with(func(d *deployment) error {
				in.Head = d.head
				return a.questions(cmd.Context(), d, in)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&root, "root", "", "only questions of the tree of this root")
	flags.StringVar(&after, "after", "", "only questions of sessions after this one, for the next page")
	flags.IntVar(&limit, "limit", 0, "how many at most; default 1000")
	return cmd
}

// questions writes as many questions as are asked for, page by page.
func (a *app) questions(ctx context.Context, d *deployment, in client.ApprovalsRequest) error {
	for left, first := cmp.Or(in.Limit, 1000), true; ; first = false {
		in.Limit = left
		var out client.ApprovalsReply
		if err := d.Call(ctx, client.MethodApprovals, in, &out); err != nil {
			return err
		}
		for _, why := range out.Lost {
			if first {
				a.printer.warn("%s", why)
			}
		}
		for _, q := range out.Approvals {
			if err := a.printer.value(q, func() { a.question(q) }); err != nil {
				return err
			}
		}
		if !out.More {
			return nil
		}
		in.AfterID = out.Approvals[len(out.Approvals)-1].Session
		if left -= len(out.Approvals); left <= 0 {
			a.printer.warn("there are more: --after %s lists those that follow", in.AfterID)
			return nil
		}
	}
}

// question writes a question on two lines.
func (a *app) question(q client.Approval) {
	a.printer.line("%-57s  %-16s %s -> %s, %s", q.Session, brief(q.Ask), q.Have, q.Want, until(q))
	a.printer.line("  %s %s", brief(q.Tool), brief(q.Arguments))
}

// until says how long a question waits yet.
func until(q client.Approval) string {
	if q.Stale {
		return "no answer counts any more: the policy has changed"
	}
	left := time.Until(time.UnixMilli(q.ExpiresAt)).Round(time.Second)
	if left <= 0 {
		return "its time is over"
	}
	return fmt.Sprintf("%v left", left)
}

func newApprovalsShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show SESSION [QUESTION]",
		Short: "Show one question whole",
		Long: `Show what a call wants to do, the mode it asks for and why, the session's policy with
where each value comes from, and until when an answer counts. The question may be
left out where a session has only one.`,
		Example: "  entail approvals show 00SESSION",
		Args:    arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(d *deployment) error {
				q, err := a.asked(cmd, d, args)
				if err != nil {
					return err
				}
				return a.printer.value(q, func() { a.showQuestion(q) })
			})
		},
	}
}

// asked finds the question that the arguments name: a session, and the question if the
// session has several.
func (a *app) asked(cmd *cobra.Command, d *deployment, args []string) (client.ApprovalReply, error) {
	var out client.ApprovalReply
	id, err := sessionID(args[0])
	if err != nil {
		return out, err
	}
	in := client.ApprovalRequest{Head: d.head, ID: id}
	if len(args) > 1 {
		in.Ask = args[1]
	}
	return out, d.Call(cmd.Context(), client.MethodApproval, in, &out)
}

func (a *app) showQuestion(q client.ApprovalReply) {
	row := func(name, format string, args ...any) { a.printer.line("%-12s %s", name, fmt.Sprintf(format, args...)) }
	row("session", "%s", q.Session)
	row("question", "%s", brief(q.Ask))
	row("call", "%s: %s %s", q.Call, brief(q.Tool), said(q.Arguments))
	row("digest", "%s", brief(q.Digest))
	row("asks for", "%s, the session has %s", q.Want, q.Have)
	row("reason", "%s", said(q.Reason))
	row("asked", "%s, %s", time.UnixMilli(q.AskedAt).Format(time.RFC3339), until(q.Approval))
	a.explained(q.Values)
	a.printer.line("answer with: entail approve %s %s, or entail deny %s %s -m WHY", q.Session, brief(q.Ask), q.Session, brief(q.Ask))
}

// said is what an agent says, with the lines behind the first one set off: none of them
// can be taken for one of ours.
func said(text string) string {
	return strings.ReplaceAll(clean(text), "\n", "\n"+strings.Repeat(" ", 13)+"| ")
}

func newApprove(a *app) *cobra.Command {
	return answerCommand(a, session.AllowedOnce, &cobra.Command{
		Use:   "approve SESSION [QUESTION]",
		Short: "Allow the call that a session asks about, once",
		Long: `Allow the call that a session asks about. It runs once, under the mode that it asked
for, and the grant dies with it. An answer does not count if the policy has changed
since the question, or the turn is being stopped: it is cancelled then, the command
fails, and a call that goes on is decided anew. The question may be left out where a
session has only one; entail approvals ls lists them.`,
		Example: `  entail approve 00SESSION
  entail approve 00SESSION ask-1.2.0-9 -m "this once"`,
	})
}

func newDeny(a *app) *cobra.Command {
	return answerCommand(a, session.Rejected, &cobra.Command{
		Use:   "deny SESSION [QUESTION]",
		Short: "Refuse the call that a session asks about",
		Long: `Refuse the call that a session asks about. Nothing of it runs; the agent is told that
it was rejected, and with -m what you say of it. The question may be left out where
a session has only one; entail approvals ls lists them.`,
		Example: `  entail deny 00SESSION -m "use the test database"`,
	})
}

// answerCommand makes the two commands that answer a question.
func answerCommand(a *app, outcome session.Outcome, cmd *cobra.Command) *cobra.Command {
	var message string
	cmd.Args = arguments(1, 2)
	cmd.Flags().StringVarP(&message, "message", "m", "", "what to tell the agent beside it; it stands in the log as your message")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.with(func(d *deployment) error {
			in := client.AnswerRequest{Head: d.head, Outcome: outcome, Message: message}
			var err error
			if in.ID, err = sessionID(args[0]); err != nil {
				return err
			}
			if len(args) > 1 {
				in.Ask = args[1]
			} else {
				q, err := a.asked(cmd, d, args)
				if err != nil {
					return err
				}
				in.Ask = q.Ask
			}
			var out client.AnswerReply
			if err := d.Call(cmd.Context(), client.MethodAnswer, in, &out); err != nil {
				return err
			}
			err = a.printer.value(out, func() {
				a.printer.line("%s of %s: %s", out.Ask, in.ID, out.Outcome)
				if out.Note != "" {
					a.printer.line("  %s", a.printer.paint(yellow, out.Note))
				}
			})
			if err == nil && out.Outcome != outcome {
				return &exitError{exit: exitFailed, code: codeFailed, err: fmt.Errorf("the answer came to %s", out.Outcome), quiet: true}
			}
			return err
		})
	}
	return cmd
}
