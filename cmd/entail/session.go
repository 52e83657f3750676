package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

func newSession(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Start, list, read and fork sessions",
		Long: `A session is one conversation with an agent, kept as a log that is only ever
appended to. These commands start sessions, list them, read their logs, fork and
export them, and release one that was stopped because its log is damaged.`,
		Example: `  entail session ls
  entail session tail -f 00SESSION`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newSessionNew(a), newSessionLs(a), newSessionShow(a), newSessionTree(a), newSessionTail(a),
		newSessionFork(a), newSessionExport(a), newSessionRelease(a),
	)
	return cmd
}

func newSessionNew(a *app) *cobra.Command {
	var root rootFlags
	cmd := &cobra.Command{
		Use:   "new [PROMPT]",
		Short: "Start a session on a running deployment and do not wait for it",
		Long: `Start a new root session on a running deployment, print its id and return. With
a prompt it starts to work at once; without one it waits for its first message.`,
		Example: `  entail session new --model openai:gpt-5 "look at the failing test"
  entail session new --model scripted:story.yaml --sandbox read-only`,
		Args: arguments(0, 64),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := ""
			if len(args) > 0 {
				var err error
				if text, err = a.prompt(args); err != nil {
					return err
				}
			}
			want, _, err := root.root(text)
			if err != nil {
				return err
			}
			return a.with(func(d *deployment) error {
				id, err := d.create(cmd.Context(), want)
				if err != nil {
					return err
				}
				return a.printer.value(client.CreatedReply{ID: id}, func() { a.printer.line("%s", id) })
			})
		},
	}
	root.register(cmd)
	return cmd
}

func newSessionLs(a *app) *cobra.Command {
	var in client.ListRequest
	var root, parent, after string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List sessions, oldest first",
		Long: `List the sessions of a deployment, oldest first, with their state: what a running one
does and for how long, what a waiting one waits for, and the age of the last event.
docs/cli.md says what each state means. A session that was stopped is listed with the reason: its log is damaged, a part of the store is
lost, or it is quarantined because workers died on it. So is one that workers were
pointed at and do not drive, for want of its workspace, say.`,
		Example: `  entail session ls
  entail session ls --origin user -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for text, into := range map[*string]*session.ID{&root: &in.Root, &parent: &in.Parent, &after: &in.AfterID} {
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
				return a.list(cmd.Context(), d, in)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&root, "root", "", "only sessions of the tree of this root")
	flags.StringVar(&parent, "parent", "", "only sessions that were started from this one")
	flags.StringVar(&after, "after", "", "only sessions after this one, for the next page")
	flags.Var(newChoice(&in.Origin, session.OriginUser, session.OriginSubagent, session.OriginImport), "origin", "only sessions of this origin")
	flags.IntVar(&in.Limit, "limit", 0, "how many at most; default 1000")
	return cmd
}

// list writes as many sessions as are asked for, page by page: an answer holds only
// so many.
func (a *app) list(ctx context.Context, d *deployment, in client.ListRequest) error {
	const usual = 1000
	left := cmp.Or(in.Limit, usual)
	for first := true; ; first = false {
		in.Limit = left
		var out client.ListReply
		if err := d.Call(ctx, client.MethodList, in, &out); err != nil {
			return err
		}
		for _, why := range out.Lost {
			if first {
				a.printer.warn("%s", why)
			}
		}
		if err := a.summaries(out.Sessions); err != nil || !out.More {
			return err
		}
		in.AfterID = out.Sessions[len(out.Sessions)-1].Header.ID
		if left -= len(out.Sessions); left <= 0 {
			a.printer.warn("there are more: --after %s lists those that follow", in.AfterID)
			return nil
		}
	}
}

// summaries writes one line for each session.
func (a *app) summaries(list []client.Summary) error {
	for _, s := range list {
		err := a.printer.value(s, func() {
			line := fmt.Sprintf("%-57s  %-24s %-18s %-12s  ", s.Header.ID, stateText(s), s.Sandbox, name(s.Header))
			a.printer.line("%s", strings.TrimRight(line+a.printer.paint(grey, nowText(s)), " "))
			if s.Stopped != "" {
				a.printer.line("  %s", a.printer.paint(red, clean(s.Stopped)))
			}
			if s.Why != "" {
				a.printer.line("  %s", a.printer.paint(yellow, clean(s.Why)))
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func newSessionShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show SESSION",
		Short: "Show one session: where it is from and where it stands",
		Long: `Show the immutable facts of a session, its state, what it waits for, its policy and
what it has done so far.`,
		Example: "  entail session show 00SESSION",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			return a.with(func(d *deployment) error {
				var s client.Summary
				if err := d.Call(cmd.Context(), client.MethodShow, client.SessionRequest{Head: d.head, ID: id}, &s); err != nil {
					return err
				}
				return a.printer.value(s, func() { a.show(s) })
			})
		},
	}
}

// show writes a session for people.
func (a *app) show(s client.Summary) {
	row := func(name, format string, args ...any) { a.printer.line("%-12s %s", name, fmt.Sprintf(format, args...)) }
	row("session", "%s", s.Header.ID)
	row("state", "%s", stateText(s))
	if now := nowText(s); now != "" {
		row("now", "%s", now)
	}
	row("label", "%s", name(s.Header))
	if s.Header.ParentSession != "" {
		row("parent", "%s (%s, depth %d)", s.Header.ParentSession, s.Header.Origin, s.Header.DelegationDepth)
	}
	row("cwd", "%s", s.Header.Cwd)
	row("workspace", "%s", client.PlaceText(s.Header.Workspace.Kind, s.Header.Workspace.Label))
	if n := s.Header.Needs; n != nil {
		row("needs", "%s", strings.TrimSpace(strings.Join(n.Labels, " ")+" "+tierText(n.Tier)))
	}
	row("policy", "sandbox %s, approvals %s, preset %s", s.Sandbox, s.Approvals, s.Preset)
	row("log", "%d events, %d inherited, tail %d", s.Next, s.Header.InheritedEventCount, s.Tail)
	row("work", "turn %d, %d model steps, %d calls succeeded, %d denied", s.Turn, s.Steps, s.Calls, s.Denials)
	for _, c := range s.Children {
		row("child", "%s", c)
	}
	if s.Worker != "" {
		row("worker", "%s", s.Worker)
	}
	if s.Voids > 0 {
		row("void", "%d records", s.Voids)
	}
	if s.Stopped != "" {
		row("stopped", "%s", clean(s.Stopped))
	}
	if s.Why != "" {
		row("not driven", "%s", clean(s.Why))
	}
}

func tierText(t session.Tier) string {
	if t == "" {
		return ""
	}
	return "tier " + string(t)
}

func newSessionTree(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "tree SESSION",
		Short: "Show the tree that a session is part of",
		Long: `Show every session of the tree that a session is part of, children below their
parents, with state and policy.`,
		Example: "  entail session tree 00SESSION",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			return a.with(func(d *deployment) error {
				tree, err := d.tree(cmd.Context(), id)
				if err != nil {
					return err
				}
				if a.printer.json {
					return a.summaries(tree)
				}
				a.branch(tree, "", 0)
				return nil
			})
		},
	}
}

// branch writes the sessions that were started from one, and what is below them.
func (a *app) branch(tree []client.Summary, parent session.ID, depth int) {
	for _, s := range tree {
		if s.Header.ParentSession != parent || s.Header.ID == parent {
			continue
		}
		a.printer.line("%s%s  %s  %s, sandbox %s, approvals %s",
			strings.Repeat("  ", depth), name(s.Header), s.Header.ID, stateText(s), s.Sandbox, s.Approvals)
		if now := nowText(s); now != "" {
			a.printer.line("%s  %s", strings.Repeat("  ", depth), a.printer.paint(grey, now))
		}
		a.branch(tree, s.Header.ID, depth+1)
	}
}

func newSessionTail(a *app) *cobra.Command {
	var follow bool
	var from uint64
	cmd := &cobra.Command{
		Use:   "tail SESSION",
		Short: "Print a session's log, and with -f what is added to it",
		Long: `Print the events of a session's log, one line each: seq, type and what it says. A
fork's log begins with what it inherited. With -f new events are printed until the
command is interrupted or the session has ended.`,
		Example: `  entail session tail 00SESSION
  entail session tail -f -o json 00SESSION`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			return a.with(func(d *deployment) error {
				return a.tail(cmd.Context(), d, id, session.Seq(from), follow)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as the log grows")
	cmd.Flags().Uint64Var(&from, "from", 0, "the first seq to print")
	return cmd
}

func (a *app) tail(ctx context.Context, d *deployment, id session.ID, from session.Seq, follow bool) error {
	wait := 0
	if follow {
		wait = 3000
	}
	for {
		var reply client.EventsReply
		err := d.Call(ctx, client.MethodEvents, client.EventsRequest{Head: d.head, ID: id, From: from, Wait: wait}, &reply)
		if ctx.Err() != nil && follow {
			return nil // the user has seen enough
		}
		if err != nil {
			return err
		}
		for i, line := range reply.Lines {
			l, err := read(id, reply.Classes[i], line)
			if err != nil {
				return err
			}
			if err := a.printer.value(l, func() {
				a.printer.line("%6d  %-21s %s", l.seq, l.typ, l.describe())
			}); err != nil {
				return err
			}
		}
		from = reply.Next
		if from >= reply.Summary.Next && (!follow || reply.Summary.Status == client.StatusEnded) {
			return nil
		}
	}
}
