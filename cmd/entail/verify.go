package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/verify"
)

// records gives verify the raw records that a deployment's coordinator holds.
type records struct {
	d    *deployment
	root session.ID // empty for all
}

// each calls fn with every session, oldest first. They are read page by page, for
// there may be more than an answer holds.
func (r records) each(ctx context.Context, fn func(client.Summary) error) error {
	in := client.ListRequest{Head: r.d.head, Root: r.root}
	for more := true; more; {
		var out client.ListReply
		if err := r.d.Call(ctx, client.MethodList, in, &out); err != nil {
			return err
		}
		for _, s := range out.Sessions {
			if err := fn(s); err != nil {
				return err
			}
			in.AfterID = s.Header.ID
		}
		more = out.More
	}
	return nil
}

// Sessions implements verify.Source.
func (r records) Sessions(ctx context.Context) ([]session.ID, error) {
	var ids []session.ID
	err := r.each(ctx, func(s client.Summary) error {
		ids = append(ids, s.Header.ID)
		return nil
	})
	return ids, err
}

// Rows implements verify.Mirror.
func (r records) Rows(ctx context.Context, fn func(verify.Row) error) error {
	return r.each(ctx, func(s client.Summary) error {
		if s.Next == 0 {
			return nil // its genesis was refused: there is no log to have folded
		}
		return fn(verify.Row{
			ID: s.Header.ID, Next: s.Next, Link: s.Link,
			Sandbox: s.Overrides.Sandbox, Approval: s.Overrides.Approval, Preset: s.Overrides.Preset,
		})
	})
}

// Records implements verify.Source.
func (r records) Records(ctx context.Context, id session.ID, fn func(session.Raw) error) error {
	in := client.RecordsRequest{Head: r.d.head, ID: id}
	for more := true; more; {
		var out client.RecordsReply
		if err := r.d.Call(ctx, client.MethodRecords, in, &out); err != nil {
			return err
		}
		for _, rec := range out.Records {
			in.From = rec.StreamSeq
			if err := fn(rec.Raw()); err != nil {
				return err
			}
		}
		more = out.More
	}
	return nil
}

func newVerify(a *app) *cobra.Command {
	var export string
	cmd := &cobra.Command{
		Use:   "verify [SESSION]",
		Short: "Check the invariants on raw logs",
		Long: `Check the invariants of the specification on the raw records of a deployment, of
one tree of it, or of a directory that session export wrote. The checks derive the
policy of every session again by rules of their own.

Each finding names session, seq and clause; with one or more the command fails.`,
		Example: `  entail verify
  entail verify --export ./00SESSION.export`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if export != "" {
				if len(args) > 0 {
					return usagef("give a session or --export, not both")
				}
				src, err := verify.OpenExport(export)
				if err != nil {
					return usagef("--export: %w; name a directory that `entail session export` wrote", err)
				}
				return a.verify(cmd.Context(), src, verify.Options{AtRest: true})
			}
			return a.with(func(d *deployment) error {
				src := records{d: d}
				if len(args) > 0 {
					id, err := sessionID(args[0])
					if err != nil {
						return err
					}
					if _, err := d.tree(cmd.Context(), id); err != nil {
						return err
					}
					src.root = id.Root()
				}
				opt, err := d.verifyOptions(cmd.Context())
				if err != nil {
					return err
				}
				opt.Mirror = src
				return a.verify(cmd.Context(), src, opt)
			})
		},
	}
	cmd.Flags().StringVar(&export, "export", "", "directory that session export wrote, instead of a deployment")
	return cmd
}

// verifyOptions are the deployment's table.
func (d *deployment) verifyOptions(ctx context.Context) (verify.Options, error) {
	info, err := d.info(ctx)
	if err != nil {
		return verify.Options{}, err
	}
	var opt verify.Options
	for _, b := range info.Settings.Presets {
		opt.Presets = append(opt.Presets, verify.Bundle{Name: b.Name, Sandbox: b.Sandbox, Approval: b.Approval})
	}
	return opt, nil
}

// verify checks src and tells what it finds.
func (a *app) verify(ctx context.Context, src verify.Source, opt verify.Options) error {
	opt.Progress = func(p verify.Progress) {
		if a.printer.live {
			fmt.Fprintf(a.printer.out, "\r\x1b[K%d of %d sessions, %d findings", p.Sessions, p.Total, p.Findings)
		}
	}
	report, err := verify.Run(ctx, src, opt)
	if a.printer.live {
		fmt.Fprint(a.printer.out, "\r\x1b[K")
	}
	if err != nil {
		return err
	}
	err = a.printer.value(report, func() {
		for _, f := range report.Findings {
			a.printer.line("%s", a.printer.paint(red, f.String()))
		}
		for _, f := range report.Notes {
			a.printer.line("note: %s", f)
		}
		for _, why := range report.NotChecked {
			a.printer.line("NOT CHECKED %s", why)
		}
		a.printer.line("%d sessions, %d records, %d events, %d void; checked %v; %d findings",
			report.Sessions, report.Records, report.Events, report.Void, report.Checked, len(report.Findings))
	})
	if err == nil && !report.Clean() {
		first := report.Findings[0]
		return fmt.Errorf("%d findings; the first: %s", len(report.Findings), first)
	}
	return err
}

func newSessionExport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "export SESSION [DIR]",
		Short: "Write a session's tree to files",
		Long: `Write the whole tree that a session is part of to a new directory: for each session
the header with its events, and a list of its records, void ones too. entail verify
--export checks such a directory without a deployment.`,
		Example: "  entail session export 00SESSION ./backup",
		Args:    arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			dir := string(id.Root()) + ".export"
			if len(args) == 2 {
				dir = args[1]
			}
			if err := newDir(dir); err != nil {
				return err
			}
			return a.with(func(d *deployment) error {
				if _, err := d.tree(cmd.Context(), id); err != nil {
					return err
				}
				if err := verify.Export(cmd.Context(), records{d, id.Root()}, dir, id.Root()); err != nil {
					return err
				}
				return a.printer.value(map[string]string{"dir": dir}, func() { a.printer.line("%s", dir) })
			})
		},
	}
}
