package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// lastWord is how long an interrupted run waits for its session to say that it
// stopped.
const lastWord = 5 * time.Second

func newRun(a *app) *cobra.Command {
	var (
		root     rootFlags
		server   serverFlags
		endpoint endpointFlags
	)
	cmd := &cobra.Command{
		Use:   "run PROMPT",
		Short: "Start a session and follow it until its tree has ended",
		Long: `Start a new session, follow it and everything it delegates until nothing is left
to do, and exit with what came of it.

Without --server a deployment is started in --dir for the time of the run, or the
one that runs there is used. The model is a script (scripted:FILE), or a model of
an endpoint that speaks the chat-completions protocol: openai:NAME and
deepseek:NAME, whose address and key come from --base-url and --api-key-file or
from OPENAI_BASE_URL, OPENAI_API_KEY, DEEPSEEK_BASE_URL and DEEPSEEK_API_KEY.
These configure the workers that this command starts. With --server, --model
names a model that the deployment offers.

Exit codes: 0 done, 1 failed, 2 usage, 3 done with denials, 4 nothing done,
5 children unfinished, 6 deployment unavailable, 7 interrupted or cancelled.`,
		Example: `  entail run --model scripted:story.yaml "write the report"
  entail run --model openai:gpt-5 --sandbox workspace-write "make the tests pass"
  entail run --model openai:local --base-url http://127.0.0.1:8000/v1 --api-key-file key "look around"
  git diff | entail run --model deepseek:deepseek-chat -o json -`,
		Args: arguments(1, 64),
		RunE: func(cmd *cobra.Command, args []string) error {
			prompt, err := a.prompt(args)
			if err != nil {
				return err
			}
			want, chosen, err := root.root(prompt)
			if err != nil {
				return err
			}
			o, err := server.options()
			if err != nil {
				return err
			}
			if o.endpoints, err = a.endpoints(endpoint); err != nil {
				return err
			}
			return a.run(cmd, want, chosen, o, root.model)
		},
	}
	root.register(cmd)
	server.register(cmd, slog.LevelError)
	endpoint.register(cmd)
	return cmd
}

// ownServer lists the flags that speak of a deployment that the command starts.
func ownServer() []string {
	return []string{"base-url", "api-key-file", "default-sandbox", "reviewer", "lease", "workers", "port", "sync-interval", "otlp-endpoint"}
}

// run runs one root to the end of its tree.
func (a *app) run(cmd *cobra.Command, want delegation.Root, m chosenModel, o serverOptions, name string) (err error) {
	ctx := cmd.Context()
	dir, err := a.serverDir()
	if err != nil {
		return err
	}
	var own *server
	switch {
	case a.server != "" || node.InUse(dir):
		for _, flag := range ownServer() {
			if cmd.Flags().Changed(flag) {
				return usagef("--%s speaks of a server that this command starts, but one runs already (%s): "+
					"give it to `entail up`, or choose another --dir", flag, a.where(dir))
			}
		}
	default:
		if err := checkKey(name, o.endpoints); err != nil {
			return err
		}
		if want.Place.Label != "" || want.Needs != nil && len(want.Needs.Labels) > 0 {
			return usagef("--workspace and --worker-label speak of workers of a fleet: those that this command starts have no labels and offer the workspace default alone; name a deployment with --server")
		}
		// The workers are this user's. A session in a place that they cannot mark
		// would wait for ever (SPEC 7.9).
		if err := sandbox.Markable(want.Cwd); err != nil {
			return usagef("--cwd %s: this user cannot mark it as a workspace: %w; work in a directory that is yours, or have its owner run `entail up`", want.Cwd, err)
		}
		if own, err = a.startServer(ctx, o); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, own.end(err)) }()
	}
	return a.with(func(d *deployment) error {
		id, err := d.create(ctx, want)
		if err != nil {
			return &refusedError{err}
		}
		a.printer.line("session %s", id)
		return a.follow(ctx, d, id, m.script)
	})
}

// refusedError says that a session was not created.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// end stops a run's own server. When it was made for a session that was refused,
// nothing is left of it.
func (s *server) end(err error) error {
	closed := s.close()
	if _, refused := errors.AsType[*refusedError](err); refused && s.fresh {
		return errors.Join(closed, os.RemoveAll(s.dir))
	}
	return closed
}

// where says which server is spoken of.
func (a *app) where(dir string) string {
	if a.server != "" {
		return "--server " + a.server
	}
	return dir
}

// create starts a root. The id is this command's, so a retry is the same request.
func (d *deployment) create(ctx context.Context, r delegation.Root) (session.ID, error) {
	info, err := d.info(ctx)
	if err != nil {
		return "", err
	}
	var needs session.Needs
	if r.Needs != nil {
		needs = *r.Needs
	}
	var out client.CreatedReply
	err = d.Call(ctx, client.MethodCreate, client.CreateRequest{
		Head: d.head, ID: newRootID(info.Partitions), Cwd: r.Cwd, Label: r.Label, Surface: r.Surface,
		Model:  client.Model{Provider: r.Provider, Model: r.Model, Script: r.Script},
		Prompt: r.Prompt, Sandbox: r.Sandbox, Approvals: r.Approvals, Preset: r.Preset,
		Workspace: r.Place.Label, WorkspaceKind: r.Place.Kind, WorkerLabels: needs.Labels, RequireTier: needs.Tier,
	}, &out)
	return out.ID, err
}

// follow shows a tree until it has settled and says what came of it.
func (a *app) follow(ctx context.Context, d *deployment, id session.ID, script *model.Script) error {
	show := newProgress(a.printer)
	f := newFollower(d, id)
	f.event, f.look = show.event, show.look
	tree, err := f.untilSettled(ctx)
	show.clear()
	if ctx.Err() != nil {
		return a.interrupted(ctx, f)
	}
	if err != nil {
		return err
	}
	for _, label := range unused(script, tree) {
		a.printer.warn("the script has a list for %q, and no session used it", label)
	}
	v := verdictOf(tree)
	return a.conclude(id, v)
}

// interrupted stops the open turn of a run and leaves a log that can be continued.
func (a *app) interrupted(ctx context.Context, f *follower) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	err := f.d.Call(ctx, client.MethodInterrupt, client.StopRequest{
		Head: f.d.head, ID: f.root, RequestID: requestID(), Reason: "the run was interrupted",
	}, nil)
	if err == nil {
		_, _ = f.untilSettled(ctx) // its session may not stop in time
	}
	a.printer.warn("interrupted; go on with: entail send %s ...", f.root)
	return a.conclude(f.root, verdict{exitInterrupted, "interrupted", "the run was interrupted"})
}

// conclude tells the verdict and exits with it.
func (a *app) conclude(id session.ID, v verdict) error {
	type result struct {
		Session session.ID `json:"session"`
		verdict
	}
	err := a.printer.value(map[string]result{"result": {id, v}}, func() {
		colour, why := green, ""
		if v.Exit != exitDone {
			colour = yellow
		}
		if v.Why != "" {
			why = ": " + brief(v.Why)
		}
		a.printer.line("%s%s", a.printer.paint(colour, v.Outcome), why)
	})
	if err != nil || v.Exit == exitDone {
		return err
	}
	return &exitError{exit: v.Exit, err: fmt.Errorf("the run ended: %s", v.Outcome), quiet: true}
}

// unused lists the labels of a script that no session of the tree has.
func unused(script *model.Script, tree []client.Summary) []string {
	if script == nil {
		return nil
	}
	used := map[string]bool{model.RootLabel: true}
	for _, s := range tree {
		used[s.Header.Label] = true
	}
	return slices.DeleteFunc(script.Labels(), func(l string) bool { return used[l] })
}
