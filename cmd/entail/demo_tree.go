package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// plot is a root of the demo: its script, and what it starts with.
type plot struct {
	name    string // of its workspace
	script  string
	prompt  string
	sandbox session.SandboxMode
	preset  session.Preset
	surface session.Surface
	filled  bool // keep.txt is there: without it an empty workspace is given to the tree
}

// dir is the workspace of a root.
func (m *demo) dir(name string) string { return filepath.Join(m.site.here, name) }

// hold is the file beside a workspace that holds a scripted response until it
// exists.
const hold = ".go"

// signal is the path of that file as workers see it.
func (m *demo) signal(name string) string { return path.Join(m.site.there, name+hold) }

// release lets a held response go on.
func (m *demo) release(name string) error { return os.WriteFile(m.dir(name)+hold, nil, 0o600) }

// begin starts a root in a new workspace.
func (m *demo) begin(ctx context.Context, p plot) (session.ID, error) {
	if err := os.MkdirAll(m.site.here, 0o711); err != nil { //nolint:gosec // a tree's own user comes through
		return "", err
	}
	if err := os.Mkdir(m.dir(p.name), 0o700); err != nil {
		return "", err
	}
	if p.filled {
		if err := os.WriteFile(filepath.Join(m.dir(p.name), "keep.txt"), []byte("kept\n"), 0o600); err != nil {
			return "", err
		}
	}
	if p.surface == "" {
		p.surface = session.SurfaceNone
	}
	var out client.CreatedReply
	err := m.d.Call(ctx, client.MethodCreate, client.CreateRequest{
		Head: m.d.head, ID: newRootID(m.info.Partitions), Cwd: path.Join(m.site.there, p.name), Label: p.name, Surface: p.surface, Prompt: p.prompt,
		Model:   client.Model{Provider: "scripted", Model: "script", Script: p.script},
		Sandbox: p.sandbox, Preset: p.preset,
	}, &out)
	if err != nil {
		return "", fmt.Errorf("start %s: %w", p.name, err)
	}
	m.trees = append(m.trees, out.ID)
	m.named[p.name] = out.ID
	return out.ID, nil
}

// settle waits until nothing of a tree has anything left to do.
func (m *demo) settle(ctx context.Context, root session.ID) error {
	_, err := newFollower(m.d, root).untilSettled(ctx)
	return err
}

// play starts a root and waits for the end of its tree.
func (m *demo) play(ctx context.Context, p plot) (session.ID, error) {
	id, err := m.begin(ctx, p)
	if err != nil {
		return "", err
	}
	return id, m.settle(ctx, id)
}

// say sends a root a message and waits for the end of its tree.
func (m *demo) say(ctx context.Context, id session.ID, text string) error {
	in := client.SendRequest{Head: m.d.head, ID: id, MessageID: requestID(), Content: text}
	if err := m.d.Call(ctx, client.MethodSend, in, nil); err != nil {
		return err
	}
	return m.settle(ctx, id)
}

// switchTo switches a session's sandbox mode, as a person.
func (m *demo) switchTo(ctx context.Context, id session.ID, mode session.SandboxMode) error {
	return m.d.Call(ctx, client.MethodPolicySet, client.PolicySetRequest{Head: m.d.head, ID: id, Sandbox: mode}, nil)
}

// set changes a setting of the deployment, as `entail config set` does.
func (m *demo) set(ctx context.Context, key, value string) error {
	in := client.ConfigSetRequest{Head: m.d.head, Path: key, Value: json.RawMessage(strconv.Quote(value))}
	return m.d.Call(ctx, client.MethodConfigSet, in, nil)
}

// settings changes what the story depends on or changes on its way.
func (m *demo) settings(ctx context.Context, mode session.SandboxMode, approval session.ApprovalPolicy, reviewer policy.Reviewer) error {
	return errors.Join(
		m.set(ctx, "defaults.sandbox", string(mode)),
		m.set(ctx, "defaults.approval", string(approval)),
		m.set(ctx, "reviewer", string(reviewer)),
	)
}

// lookEvery is how often the demo looks for what it waits for. A kill has to come
// in the middle of something.
const lookEvery = 2 * time.Millisecond

// await looks again and again until what it waits for is there.
func await(ctx context.Context, every time.Duration, there func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := there()
		if ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// exists reports whether a workspace holds a file.
func (m *demo) exists(name, file string) bool {
	_, err := os.Stat(filepath.Join(m.dir(name), file))
	return err == nil
}

// holds reports whether a file of a workspace holds exactly this.
func (m *demo) holds(name, file, text string) bool {
	got, err := os.ReadFile(filepath.Join(m.dir(name), file))
	return err == nil && string(got) == text
}

// fingerprint is of every name, mode and byte of a workspace.
func (m *demo) fingerprint(name string) (string, error) {
	sum := sha256.New()
	tree := os.DirFS(m.dir(name))
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %v\n", path, d.Type())
		if !d.Type().IsRegular() {
			return nil
		}
		text, err := fs.ReadFile(tree, path)
		fmt.Fprintf(sum, "%d\n%s", len(text), text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:12], err
}
