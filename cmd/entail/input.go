package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// maxInput bounds what is read from standard input as a prompt. What is longer is
// refused by its length anyway.
const maxInput = 1 << 20

// arguments accepts between least and most arguments and names them in the error.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef("%s takes: %s", cmd.CommandPath(), cmd.UseLine())
		}
		return nil
	}
}

// sessionID reads an id that the user gave.
func sessionID(s string) (session.ID, error) {
	id, err := session.ParseID(s)
	if err != nil {
		return "", usagef("%w; `entail session ls` lists them", err)
	}
	return id, nil
}

// callID reads the id of a call.
func callID(s string) (session.CallID, error) {
	id := session.CallID(s)
	if _, _, _, ok := id.Parts(); !ok {
		const most = 80
		if len(s) > most {
			s = s[:most]
		}
		return "", usagef("call %q is not TURN.STEP.INDEX, such as 1.2.0; `entail session tail` lists them", s)
	}
	return id, nil
}

// prompt joins the text of arguments, or reads it from standard input for "-".
func (a *app) prompt(args []string) (string, error) {
	text := strings.Join(args, " ")
	if len(args) == 1 && args[0] == "-" {
		in, err := io.ReadAll(io.LimitReader(a.in, maxInput))
		if err != nil {
			return "", fmt.Errorf("read the prompt from standard input: %w", err)
		}
		text = string(in)
	}
	if strings.TrimSpace(text) == "" {
		return "", usagef("the prompt is empty: give it as an argument, or - to read it from standard input")
	}
	if err := delegation.CheckPrompt(text); err != nil {
		return "", usagef("%w", err)
	}
	return text, nil
}

// workspace resolves the directory to work in: absolute, without links.
func workspace(dir string) (string, error) {
	const wayOut = "name the directory to work in"
	if dir == "" {
		return "", usagef("--cwd is empty: %s", wayOut)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", usagef("--cwd %q: %w", dir, err)
	}
	resolved, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return "", usagef("--cwd %s does not exist: make it, or name another directory", abs)
	}
	if err != nil {
		return "", usagef("--cwd %s: %w; %s", abs, err, wayOut)
	}
	info, err := os.Stat(resolved)
	switch {
	case err != nil:
		return "", usagef("--cwd %s: %w; %s", abs, err, wayOut)
	case !info.IsDir():
		return "", usagef("--cwd %s is a file: %s", abs, wayOut)
	case resolved == "/":
		return "", usagef("--cwd is /: %s, not the whole machine", wayOut)
	}
	return resolved, nil
}

// newDir checks that a directory can be made under a name.
func newDir(dir string) error {
	const wayOut = "name a new directory in one that is there"
	if dir == "" {
		return usagef("the directory has no name: %s", wayOut)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return usagef("%w; %s", err, wayOut)
		}
		return usagef("%s exists: %s; nothing is written over", dir, wayOut)
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		return usagef("%s cannot be made: %s is no directory; %s", dir, parent, wayOut)
	}
	if err := writable(parent); err != nil {
		return usagef("%s cannot be made: %w; %s", dir, err, wayOut)
	}
	return nil
}

// shown is an address as an error repeats it: not when it may hold a password.
func shown(address string) string {
	if strings.Contains(address, "@") {
		return "(it may hold a password and is not shown)"
	}
	return strconv.Quote(address)
}

// rootFlags are the flags of a new root.
type rootFlags struct {
	cwd, model, label string
	sandbox           session.SandboxMode
	approvals         session.ApprovalPolicy
	preset            string
	surface           session.Surface
	place             string
	labels            []string
	tier              session.Tier
}

func (f *rootFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.cwd, "cwd", ".", "directory to work in")
	flags.StringVar(&f.model, "model", "", "scripted:FILE, openai:NAME or deepseek:NAME")
	flags.StringVar(&f.label, "label", "", "a short name for the session")
	flags.Var(newChoice(&f.sandbox, session.SandboxModes()...), "sandbox", "sandbox mode to start with; default the deployment's, live")
	flags.Var(newChoice(&f.approvals, session.Ask, session.Never), "approvals", "approval policy to start with; default the deployment's, live")
	flags.StringVar(&f.preset, "preset", "", "preset of the deployment's table to start with")
	flags.StringVar(&f.place, "workspace", "", "label of the workspace that --cwd is in, where workers offer others than default: LABEL or host:LABEL; then --cwd is the workers' path")
	flags.StringSliceVar(&f.labels, "worker-label", nil, "a label that a worker must have to drive the session and all below it; may be repeated")
	flags.Var(newChoice(&f.tier, session.Tiers()...), "require-tier", "the weakest fence that the session's confined calls may run under, on whatever worker")
	f.surface = session.SurfaceNone
	flags.Var(newChoice(&f.surface, session.SurfaceNone, session.SurfaceAny), "surface", "whether there is anybody to ask")
}

// root checks the flags and composes the root they ask for. Nothing is started
// before all of it makes sense.
func (f *rootFlags) root(prompt string) (delegation.Root, chosenModel, error) {
	place, needs, err := f.asks()
	if err != nil {
		return delegation.Root{}, chosenModel{}, err
	}
	cwd, err := f.directory(place)
	if err != nil {
		return delegation.Root{}, chosenModel{}, err
	}
	m, err := chooseModel(f.model)
	if err != nil {
		return delegation.Root{}, chosenModel{}, err
	}
	if f.label != "" {
		if err := delegation.CheckLabel(f.label); err != nil {
			return delegation.Root{}, chosenModel{}, usagef("--label: %w", err)
		}
	}
	if f.preset != "" && (f.sandbox != "" || f.approvals != "") {
		return delegation.Root{}, chosenModel{}, usagef("--preset sets sandbox and approvals: give it alone")
	}
	return delegation.Root{
		Cwd: cwd, Label: f.label, Surface: f.surface, Provider: m.wire.Provider, Model: m.wire.Model, Script: m.wire.Script,
		Prompt: prompt, Sandbox: f.sandbox, Approvals: f.approvals, Preset: session.Preset(f.preset),
		Place: place, Needs: needs,
	}, m, checkFits(prompt, m.wire.Script)
}

// asks is what the flags ask of workers.
func (f *rootFlags) asks() (delegation.Place, *session.Needs, error) {
	var place delegation.Place
	var err error
	if place.Kind, place.Label, err = client.ParsePlace(f.place); err != nil {
		return place, nil, usagef("--workspace: %w", err)
	}
	if len(f.labels) == 0 && f.tier == "" {
		return place, nil, nil
	}
	n := session.Needs{Labels: slices.Compact(slices.Sorted(slices.Values(f.labels))), Tier: f.tier}
	if err := n.Check(); err != nil {
		return place, nil, usagef("--worker-label: %w", err)
	}
	return place, &n, nil
}

// directory is where the session works. In a workspace of a label it is on the workers
// that offer it, and need not be here.
func (f *rootFlags) directory(place delegation.Place) (string, error) {
	if place.Label == "" {
		return workspace(f.cwd)
	}
	if !filepath.IsAbs(f.cwd) || filepath.Clean(f.cwd) != f.cwd || f.cwd == "/" {
		return "", usagef("--cwd %q: with --workspace give the whole path that the directory has on the workers", f.cwd)
	}
	return f.cwd, nil
}

// checkFits refuses a prompt that does not fit into one record beside the script,
// before a deployment is started for it.
func checkFits(prompt, script string) error {
	r := delegation.Root{
		ID: newRootID(1), Tenant: "default", By: session.Party{Kind: session.Person, ID: "somebody"},
		Workspace: session.Workspace{Kind: session.WorkspaceShared, Label: "default", Path: "/w", ID: "w"}, Cwd: "/w",
		Provider: "scripted", Model: "script", Script: script, Prompt: prompt,
	}
	record, err := r.Genesis(policy.Deployment{Settings: policy.DefaultSettings()})
	if err == nil {
		_, _, err = session.EncodeRecord(record)
	}
	if errors.Is(err, session.ErrTooLarge) {
		return usagef("the prompt (%d bytes) does not fit into one record beside the script (%d bytes): shorten one of them", len(prompt), len(script))
	}
	return nil
}

// newRootID makes the id of a new tree.
func newRootID(partitions int) session.ID {
	id, err := session.RootID(ulid.Make().String(), max(partitions, 1))
	if err != nil {
		panic("unreachable: a fresh ULID makes an id: " + err.Error())
	}
	return id
}

// requestID names a request so that sending it again is the same request.
func requestID() string { return strings.ToLower(ulid.Make().String()) }
