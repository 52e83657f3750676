package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

func newDoctor(a *app) *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Try what this machine can hold calls by, and say what would give more",
		Long: `Try what this machine can hold calls by: each tier by a call that attacks, and what
danger-full-access reaches. For what is not had it says why, and what to do about it;
docs/deploy.md has more on each advice. It says too what a workspace in --cwd would
get, and whether a deployment in --dir answers. It changes nothing.

Run it as a worker runs there: as the same user, in the same container.

It exits with 0 if the tier is had that --require names, else the one that the
deployment's confinement.require names if it answers, else the strongest; if not,
with 8. With --cwd that is the tier of calls there, else that of calls in a workspace
that belongs to its tree.`,
		Example: `  entail doctor
  entail doctor --require uid --cwd /srv/work -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.there = f.cwd != "." || cmd.Flags().Changed("cwd")
			return a.doctor(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.Var(newChoice(&f.require, session.Tiers()...), "require", "the tier that has to be had; default the deployment's, else the strongest")
	flags.StringVar(&f.cwd, "cwd", ".", "directory that a session would work in")
	return cmd
}

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	require session.Tier
	cwd     string
	there   bool // cwd was given
}

// diagnosis is all that doctor found.
type diagnosis struct {
	Build      build           `json:"build"`
	Host       sandbox.Report  `json:"host"`
	Workspace  *sandbox.Site   `json:"workspace,omitempty"`
	Deployment deploymentState `json:"deployment"`
	// Required is the tier that has to be had, Had the one that is.
	Required session.Tier `json:"required"`
	Had      session.Tier `json:"had,omitempty"`
	OK       bool         `json:"ok"`
}

// deploymentState is what is known of the deployment in --dir.
type deploymentState struct {
	TokenFile string `json:"tokenFile"`
	There     bool   `json:"there"`
	Answers   bool   `json:"answers"`
	Error     string `json:"error,omitempty"`
	// What it says of itself.
	Version     string              `json:"version,omitempty"`
	Durability  string              `json:"durability,omitempty"`
	Revision    uint64              `json:"revision,omitempty"`
	Confinement *policy.Confinement `json:"confinement,omitempty"`
}

func (a *app) doctor(ctx context.Context, f doctorFlags) error {
	cwd, err := workspace(f.cwd)
	if err != nil && f.there {
		return err
	}
	hidden, err := a.hiddenPaths()
	if err != nil {
		return err
	}
	d := diagnosis{Build: versionOf(), Deployment: a.deploymentState(ctx), Required: f.require}
	terms := policy.DefaultConfinement()
	if c := d.Deployment.Confinement; c != nil {
		terms = *c
	}
	r, err := sandbox.New(sandbox.Config{Hidden: hidden, UIDs: terms.UIDs})
	if err != nil && !errors.Is(err, sandbox.ErrUnavailable) {
		return err
	}
	d.Host = r.Report()
	d.Had = d.Host.Own.Tier
	if cwd != "" {
		site, err := r.Survey(cwd, newRootID(1), terms)
		if err != nil && f.there {
			return usagef("--cwd %s: %w", cwd, err)
		}
		if err == nil {
			d.Workspace = &site
		}
		if f.there {
			d.Had = site.Tier
		}
	}
	if d.Required == "" && d.Deployment.Answers {
		d.Required = terms.Require
	}
	if d.Required == "" {
		d.Required = session.TierNamespaces
	}
	d.OK = !d.Had.Weaker(d.Required)
	return a.diagnosed(d)
}

// deploymentState asks the deployment in --dir what it is, if there is one.
func (a *app) deploymentState(ctx context.Context) deploymentState {
	s := deploymentState{TokenFile: a.tokenPath(a.dir)}
	_, err := os.Lstat(s.TokenFile)
	s.There = !errors.Is(err, fs.ErrNotExist)
	if !s.There {
		return s
	}
	err = a.with(func(d *deployment) error {
		info, err := d.info(ctx)
		if err != nil {
			return err
		}
		s.Answers, s.Version, s.Durability, s.Revision = true, info.Version, info.Durability, info.Revision
		s.Confinement = &info.Settings.Confinement
		return nil
	})
	if err != nil {
		s.Error = err.Error()
	}
	return s
}

// diagnosed writes what was found, and judges it.
func (a *app) diagnosed(d diagnosis) error {
	if err := a.printer.value(d, func() { a.diagnosisText(d) }); err != nil || d.OK {
		return err
	}
	had := string(d.Had)
	if had == "" {
		had = "nothing"
	}
	return &exitError{
		exit: exitUnheld, code: sandbox.CodeUnavailable, quiet: a.printer.json,
		err: fmt.Errorf("calls are held by %s here, and %s is required", had, d.Required),
	}
}

func (a *app) diagnosisText(d diagnosis) {
	h := d.Host
	a.printer.line("entail         %s, %s", d.Build.Version, d.Build.Go)
	a.printer.line("host           %s, kernel %s, Landlock ABI %d, user %d", h.System, orNone(h.Kernel), h.Landlock, h.User)
	a.printer.line("launcher       %s", orNone(string(h.Launcher)))
	for _, t := range h.Tiers {
		a.tierText(t)
	}
	a.printer.line("")
	a.fenceText("a workspace that belongs to its tree", h.Own)
	a.fenceText("any other workspace", h.Other)
	a.printer.line("network loopback   %s", yesNo(h.Loopback))
	if h.Uncounted == "" {
		a.printer.line("processes counted  yes")
	} else {
		a.printer.line("processes counted  no, and confinement.limits.processes is not kept: %s", h.Uncounted)
	}
	if h.Switches {
		a.printer.line("users of trees     %d to %d", h.UIDs.First, uint64(h.UIDs.First)+uint64(h.UIDs.Count)-1)
	} else {
		a.printer.line("users of trees     none: calls run as user %d", h.User)
	}
	for _, f := range h.FullAccess {
		a.printer.line("danger-full-access as %s, user %d: %s", f.As, f.User, reachText(f))
	}
	a.adviceText(h.More)
	if d.Workspace != nil {
		a.siteText(*d.Workspace)
	}
	a.printer.line("deployment         %s", d.Deployment.text())
	if d.OK {
		a.printer.line("%s", a.printer.paint(green, fmt.Sprintf("calls are held by %s, which is what %s asks for", d.Had, d.Required)))
	}
}

func (a *app) tierText(t sandbox.TierReport) {
	if !t.Had {
		a.printer.line("tier %-10s %s: %s", t.Tier, a.printer.paint(red, "not had"), clean(t.Why))
		a.adviceText(t.Advice)
		return
	}
	a.printer.line("tier %-10s %s", t.Tier, a.printer.paint(green, "had"))
	a.modesText(t.Modes)
}

func (a *app) modesText(modes []session.Confinement) {
	for _, c := range modes {
		a.printer.line("  %-16s enforcement %s, leaves open %v", c.Mode, c.Enforcement, c.Gaps)
	}
}

func (a *app) fenceText(what string, f sandbox.Fence) {
	if f.Tier == "" {
		a.printer.line("%s: confined calls are refused", what)
		return
	}
	a.printer.line("%s: calls are held by %s", what, f.Tier)
	a.modesText(f.Modes)
}

func (a *app) adviceText(all []sandbox.Advice) {
	for _, v := range all {
		a.printer.line("  for more: %s [%s]", v.Text, v.Code)
	}
}

func (a *app) siteText(s sandbox.Site) {
	a.printer.line("workspace %s, owner %d", s.Path, s.Owner)
	switch {
	case s.Given:
		a.printer.line("  it is empty and yours: the first session there is given it, as user %d or another of its tree's own", s.TreeUser)
	case s.TreeUser != 0 && !s.Reachable:
		a.printer.line("  a tree's own user cannot come to it: a directory above it is closed to others (chmod o+x)")
	case s.TreeUser != 0:
		a.printer.line("  it belongs to user %d and is not empty or not yours: calls of a new tree run there as user %d. An empty directory of yours is given to its tree", s.Owner, os.Geteuid())
	}
	if s.Refused != "" {
		a.printer.line("  %s: %s", a.printer.paint(red, "confined calls are refused there"), clean(s.Refused))
		return
	}
	a.fenceText("  there", s.Fence)
}

func (d deploymentState) text() string {
	switch {
	case !d.There:
		return "none in --dir: " + d.TokenFile + " does not exist"
	case !d.Answers:
		return "does not answer: " + clean(d.Error)
	}
	return fmt.Sprintf("answers: version %s, %s, settings revision %d, confinement.require %s", d.Version, d.Durability, d.Revision, d.Confinement.Require)
}

func reachText(f sandbox.FullAccess) string {
	if f.Failed != "" {
		return "not tried: " + clean(f.Failed)
	}
	s := fmt.Sprintf("reads the worker's environment and memory: %s; signals it: %s", yesNo(f.Environ), yesNo(f.Signal))
	if len(f.Hidden) > 0 {
		s += fmt.Sprintf("; reads %q", f.Hidden)
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
