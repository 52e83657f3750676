package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

func newSandbox(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Try the fence that calls are run behind",
		Long: `Try the fence that calls are run behind, without a deployment and without a model.
What this machine has for a fence is told by entail doctor.`,
		Example: "  entail sandbox exec --mode read-only -- touch /tmp/x",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSandboxExec(a))
	return cmd
}

// execFlags are the flags of sandbox exec.
type execFlags struct {
	mode          session.SandboxMode
	network       session.Network
	cwd           string
	most, require session.Tier
	tree, facts   string
	timeout       time.Duration
}

func newSandboxExec(a *app) *cobra.Command {
	f := execFlags{mode: session.ReadOnly, most: session.TierNamespaces, require: session.TierLandlock}
	cmd := &cobra.Command{
		Use:   "exec COMMAND [ARG...]",
		Short: "Run a command behind the fence",
		Long: `Run a command as a session's call is run: decided by the policy, behind the fence of
its mode, in an environment of its own, and with everything it started gone at its
end. It has this command's standard input, output and error; a terminal among them is
not its controlling one, so there is no job control, and Ctrl-C ends it from outside.
What it is given is its own, whatever its mode: a file that standard output goes to
can be written.

Without --tree it runs as you. With one it runs as a session of that tree would: where
users can be switched, as the tree's user, to whom an empty --cwd is given. The data
directory in --dir and its token file are hidden, if they are there.

The exit code is the command's, 128 and a signal's number if one ended it, 126 if it
could not be executed and 127 if it was not found. Where it was not run the code is
entail's: 2 for the command line, 8 where this machine cannot hold it as asked. What
held it is told on standard error, or as JSON in --facts.`,
		Example: `  entail sandbox exec --mode read-only -- touch /tmp/x
  entail sandbox exec --mode workspace-write --network deny --cwd ./repo -- make test
  entail sandbox exec --mode workspace-write --tier-at-most landlock --facts facts.json -- id`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 || args[0] == "":
				return usagef("%s takes: %s; there is no command: give one behind --", cmd.CommandPath(), cmd.UseLine())
			case slices.ContainsFunc(args, func(s string) bool { return strings.Contains(s, "\x00") }):
				return usagef("an argument holds a NUL byte, which no argument of a command can: leave it out")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.sandboxExec(cmd.Context(), f, args) },
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command is the command's
	flags.Var(newChoice(&f.mode, session.SandboxModes()...), "mode", "sandbox mode to run under")
	flags.Var(newChoice(&f.network, session.Networks()...), "network", "what it may reach; default the mode's, as new deployments have it")
	flags.StringVar(&f.cwd, "cwd", ".", "directory to work in, its workspace")
	flags.Var(newChoice(&f.most, session.Tiers()...), "tier-at-most", "strongest tier to use, to see what a weaker host does")
	flags.Var(newChoice(&f.require, session.Tiers()...), "require", "weakest tier to accept; where there is less nothing is run")
	flags.StringVar(&f.tree, "tree", "", "run as a session of the tree with this root would; default as you")
	flags.DurationVar(&f.timeout, "timeout", 0, "end it after this time; default never")
	flags.StringVar(&f.facts, "facts", "", "`file` to write what held it and how it ended to, as JSON; /dev/fd/N is a descriptor")
	return cmd
}

// never is a time that no command lives to see.
const never = 100 * 365 * 24 * time.Hour

// execFacts are what is known of one command.
type execFacts struct {
	Ran      bool                 `json:"ran"`
	ExitCode int                  `json:"exitCode"`
	Signal   string               `json:"signal,omitempty"`
	TimedOut bool                 `json:"timedOut,omitempty"`
	Limit    session.Limit        `json:"limit,omitempty"`
	Swept    int                  `json:"swept,omitempty"` // processes that it left behind
	Sandbox  *session.Confinement `json:"sandbox,omitempty"`
	Error    string               `json:"error,omitempty"`
}

func (a *app) sandboxExec(ctx context.Context, f execFlags, argv []string) (err error) {
	cwd, err := f.check()
	if err != nil {
		return err
	}
	hidden, err := a.hiddenPaths()
	if err != nil {
		return err
	}
	permit, err := f.permit(cwd, session.Party{Kind: session.Person, ID: a.user()})
	if err != nil {
		return err
	}
	r, err := sandbox.New(sandbox.Config{Hidden: hidden, Env: shellEnviron(a.lookup), Best: f.most})
	if err != nil && !errors.Is(err, sandbox.ErrUnavailable) {
		return err
	}
	ws, err := r.Workspace(cwd, session.ID(f.tree))
	if err != nil {
		return usagef("--cwd %s: %w", cwd, err)
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	told, closeTold, err := a.factsTo(f.facts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTold()) }()
	res, err := ws.Exec(ctx, permit, sandbox.Shell{Argv: argv, Timeout: f.timeout}, nil, sandbox.Streams{In: a.in, Out: a.out, Err: a.err})
	facts, err := factsOf(res, err)
	told(facts)
	return err
}

// check holds the flags to what makes sense together, and resolves the directory.
func (f *execFlags) check() (cwd string, err error) {
	if f.tree != "" {
		id, err := session.ParseID(f.tree)
		if err != nil || id.Root() != id {
			return "", usagef("--tree %.60q is no root's id: give the id of a session without a parent, as `entail session ls` shows it", f.tree)
		}
	}
	switch {
	case f.timeout < 0:
		return "", usagef("--timeout %v: give a time above 0, or none", f.timeout)
	case f.timeout == 0:
		f.timeout = never
	}
	if f.mode == session.DangerFullAccess && f.network != "" && f.network != session.NetworkAllow {
		return "", usagef("--network %s: under danger-full-access everything is reached: use --network allow, or another --mode", f.network)
	}
	if f.most.Weaker(f.require) {
		return "", usagef("--tier-at-most %s is weaker than --require %s: nothing could run", f.most, f.require)
	}
	return workspace(f.cwd)
}

// permit has the command decided as a session's call is: that of a new root that a
// person started under the mode.
func (f *execFlags) permit(cwd string, by session.Party) (policy.Permit, error) {
	settings := policy.DefaultSettings()
	settings.Confinement.Require = f.require
	switch {
	case f.network == "":
	case f.mode == session.ReadOnly:
		settings.Confinement.Network.ReadOnly = f.network
	case f.mode == session.WorkspaceWrite:
		settings.Confinement.Network.WorkspaceWrite = f.network
	}
	stored, err := settings.Encode()
	if err != nil {
		return policy.Permit{}, err
	}
	deployment, err := policy.NewDeployment(stored, 1)
	if err != nil {
		return policy.Permit{}, err
	}
	state, err := oneCall(deployment, f.mode, cwd, by)
	if err != nil {
		return policy.Permit{}, fmt.Errorf("compose a session: %w", err)
	}
	decision, err := policy.Decide(state, deployment, policy.Call{ID: theCall, Tool: theTool, Effect: true}, agent.Tools())
	if err != nil {
		return policy.Permit{}, err
	}
	permit, ok := decision.(policy.Permit)
	if !ok {
		return policy.Permit{}, fmt.Errorf("the policy does not allow it: %s", decision.Record().Reason)
	}
	return permit, nil
}

// factsTo opens where facts go: a file, or standard error.
func (a *app) factsTo(name string) (told func(execFacts), end func() error, err error) {
	if name != "" {
		w, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return nil, nil, usagef("--facts: %w; name a file to write", err)
		}
		return func(f execFacts) { err = json.NewEncoder(w).Encode(f) }, func() error { return errors.Join(err, w.Close()) }, nil
	}
	end = func() error { return nil }
	if a.printer.json {
		return func(f execFacts) { _ = json.NewEncoder(a.err).Encode(f) }, end, nil
	}
	return func(f execFacts) {
		if f.Ran {
			fmt.Fprintf(a.err, "entail: %s\n", f.text())
		}
	}, end, nil
}

func (f execFacts) text() string {
	words := []string{fmt.Sprintf("exit code %d", f.ExitCode)}
	if f.Signal != "" {
		words = append(words, "signal "+f.Signal)
	}
	if f.TimedOut {
		words = append(words, "timed out")
	}
	if f.Swept > 0 {
		words = append(words, fmt.Sprintf("%d processes left behind and ended", f.Swept))
	}
	if f.Error != "" {
		words = append(words, clean(f.Error))
	}
	return strings.Join(words, ", ") + "; held by " + heldText(*f.Sandbox)
}

// factsOf judges what came of a command, and how this one exits.
func factsOf(res sandbox.Result, err error) (execFacts, error) {
	switch {
	case err != nil:
		return execFacts{Error: err.Error()}, err
	case res.Code == sandbox.CodeUnavailable:
		err := &exitError{exit: exitUnheld, code: res.Code, err: errors.New(res.Output)}
		return execFacts{Error: res.Output}, err
	}
	f := execFacts{
		Ran: true, ExitCode: res.ExitCode, Signal: res.Signal, TimedOut: res.TimedOut, Limit: res.Limit, Swept: res.Swept,
		Sandbox: &res.Sandbox, Error: res.Output,
	}
	if f.ExitCode == 0 {
		return f, nil
	}
	return f, &exitError{exit: f.ExitCode, code: codeFailed, err: errors.New("the command failed"), quiet: true}
}

// hiddenPaths are what a deployment's workers hide on this machine, as far as it is
// there.
func (a *app) hiddenPaths() ([]string, error) {
	var out []string
	for _, path := range []string{a.dir, a.tokenFile} {
		if path == "" {
			continue
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, usagef("--dir and --token-file: %w", err)
		}
		if _, err := os.Lstat(abs); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		out = append(out, abs)
	}
	return out, nil
}
