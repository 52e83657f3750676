package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// tenant is the one tenant there is until there are more.
const tenant = "default"

// create starts a root. Sending the same request again finds the same session.
func (c *Coordinator) create(ctx context.Context, who caller, in client.CreateRequest) (*client.CreatedReply, *client.Position, error) {
	if err := c.known(in.ID); err != nil {
		return nil, nil, err
	}
	place, err := placeOf(in)
	if err != nil {
		return nil, nil, err
	}
	needs, err := needsOf(in)
	if err != nil {
		return nil, nil, err
	}
	root := delegation.Root{
		ID: in.ID, Tenant: tenant, By: who.party, Time: c.now(), Traceparent: in.Traceparent,
		Workspace: place, Needs: needs, Place: delegation.Place{Kind: in.WorkspaceKind, Label: in.Workspace},
		Cwd: in.Cwd, Label: in.Label, Surface: in.Surface, Provider: in.Model.Provider, Model: in.Model.Model,
		Script: in.Model.Script, Prompt: in.Prompt, Sandbox: in.Sandbox, Approvals: in.Approvals, Preset: in.Preset,
	}
	if reply, position, err := c.existing(ctx, in.ID, root); reply != nil || err != nil {
		return reply, position, err
	}
	if err := c.checkRoot(root); err != nil {
		return nil, nil, err
	}
	record, err := root.Genesis(c.settings())
	if err != nil {
		return nil, nil, err
	}
	return c.bring(ctx, root, record, session.Prefix{})
}

func (c *Coordinator) checkRoot(r delegation.Root) error {
	if !r.ID.IsRoot() {
		return invalid("id %s is not a root's: a new tree's id is two hex digits and a ULID", r.ID)
	}
	if want, err := session.RootID(string(r.ID[2:]), c.cfg.Partitions); err != nil || want != r.ID {
		return invalid("id %s is not a root of this deployment: with %d partitions it must be %s", r.ID, c.cfg.Partitions, want)
	}
	if !path.IsAbs(r.Cwd) || path.Clean(r.Cwd) != r.Cwd || r.Cwd == "/" || strings.ContainsFunc(r.Cwd, unicode.IsControl) {
		return invalid("cwd %q is not a canonical absolute path below /: give the directory to work in", r.Cwd)
	}
	if err := errors.Join(checkName("model.provider", r.Provider), checkName("model.model", r.Model)); err != nil {
		return err
	}
	if name := r.Provider + ":" + r.Model; len(c.cfg.Models) > 0 && r.Script == "" && !slices.Contains(c.cfg.Models, name) {
		return invalid("model %q is not offered here (available: %v)", name, c.cfg.Models)
	}
	if r.Surface != "" && r.Surface != session.SurfaceNone && r.Surface != session.SurfaceAny {
		return invalid("unknown surface %q (available: %s, %s)", r.Surface, session.SurfaceNone, session.SurfaceAny)
	}
	return checkBirth(r.Label, r.Traceparent)
}

// room refuses new sessions while the rest of the store is kept for ends. What
// the server said is believed for a second, unless there was little room left.
func (c *Coordinator) room(ctx context.Context, id session.ID) error {
	p, now := id.Partition(), c.cfg.Now()
	c.mu.Lock()
	known := now.Sub(c.roomy[p]) <= time.Second
	c.mu.Unlock()
	if known {
		return nil
	}
	info, err := c.cfg.Log.Info(ctx, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if info.Scarce() {
		delete(c.roomy, p)
	} else {
		c.roomy[p] = now
	}
	c.mu.Unlock()
	if info.Full() {
		return &client.Error{Code: client.CodeFull, Message: fmt.Sprintf(
			"the store is nearly full: partition %d takes no new sessions, so that those it has can end; raise its max_bytes or archive session trees", p)}
	}
	return nil
}

// fork starts a person's fork (SPEC 1.8).
func (c *Coordinator) fork(ctx context.Context, who caller, in client.ForkRequest) (*client.CreatedReply, *client.Position, error) {
	for _, id := range []session.ID{in.ID, in.Source} {
		if err := c.known(id); err != nil {
			return nil, nil, err
		}
	}
	f := delegation.Fork{
		ID: in.ID, By: who.party, Time: c.now(), Traceparent: in.Traceparent,
		Source: in.Source, Label: in.Label, Prompt: in.Prompt,
	}
	if reply, position, err := c.existing(ctx, in.ID, f); reply != nil || err != nil {
		return reply, position, err
	}
	if err := checkBirth(in.Label, in.Traceparent); err != nil {
		return nil, nil, err
	}
	source, err := c.cfg.Store.View(ctx, in.Source, 0)
	if err != nil {
		return nil, nil, err
	}
	record, err := f.Genesis(source.State)
	if err != nil {
		return nil, nil, err
	}
	return c.bring(ctx, f, record, source.State.InheritAll())
}

// existing confirms a creation that was done before, nil if this request did none:
// sent again it is answered as the first was, whatever would refuse it now (SPEC
// 1.10).
func (c *Coordinator) existing(ctx context.Context, id session.ID, request any) (*client.CreatedReply, *client.Position, error) {
	entry, err := c.cfg.Store.Session(id)
	if errors.Is(err, session.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	digest, err := delegation.Digest(request)
	if err != nil || entry.State.Header.Request != digest {
		return nil, nil, err
	}
	if err := c.lost(ctx, id.Partition()); err != nil {
		return nil, nil, err
	}
	return &client.CreatedReply{ID: id, Existing: true}, at(id, entry.Born), nil
}

// errExists ends an append that finds its session there.
var errExists = errors.New("the session exists")

// bring commits a genesis that stands in its own space, if there is room. A session
// that exists by now may be this request's own, sent twice.
func (c *Coordinator) bring(ctx context.Context, request any, record session.Record, prefix session.Prefix) (*client.CreatedReply, *client.Position, error) {
	id := record.Address.Session
	done, err := c.append(ctx, id, stream.Change{
		Name: "create session", Inherits: prefix,
		Check: func(v session.View) error {
			if v.State.Header.ID != "" {
				return errExists
			}
			return nil
		},
		Genesis: func(session.View) (session.Record, error) {
			if err := c.room(ctx, id); err != nil {
				return session.Record{}, err
			}
			return record, nil
		},
	})
	if errors.Is(err, errExists) {
		reply, position, err := c.existing(ctx, id, request)
		if reply == nil && err == nil {
			err = &client.Error{Code: client.CodeExists, Session: id, Message: fmt.Sprintf("session %s exists and was made by another request: take a new id", id)}
		}
		return reply, position, err
	}
	if err != nil {
		return nil, nil, err
	}
	if err := c.cfg.Store.WaitFor(ctx, id.Partition(), done.StreamSeq); err != nil {
		return nil, nil, err
	}
	return &client.CreatedReply{ID: id}, at(id, done.StreamSeq), nil
}

// placeOf is the place that a request names, with its id (SPEC 7.9, docs/adr/0006):
// the same for every coordinator, without asking anybody.
func placeOf(in client.CreateRequest) (session.Workspace, error) {
	w := session.Workspace{
		Kind: cmp.Or(in.WorkspaceKind, session.WorkspaceShared), Label: cmp.Or(in.Workspace, tenant), Path: in.Cwd,
	}
	if err := client.CheckPlace(w.Kind, w.Label); err != nil {
		return w, invalid("%v", err)
	}
	digest, err := delegation.Digest([]string{tenant, string(w.Kind), w.Label, w.Path})
	if err != nil {
		return w, fmt.Errorf("name the workspace %q: %w", w.Path, err)
	}
	w.ID = "w" + digest[:24]
	return w, nil
}

// needsOf is what a request asks of workers, in order, nil for nothing.
func needsOf(in client.CreateRequest) (*session.Needs, error) {
	if len(in.WorkerLabels) == 0 && in.RequireTier == "" {
		return nil, nil //nolint:nilnil // it asks nothing
	}
	n := session.Needs{Labels: slices.Compact(slices.Sorted(slices.Values(in.WorkerLabels))), Tier: in.RequireTier}
	if err := n.Check(); err != nil {
		return nil, invalid("%v", err)
	}
	return &n, nil
}
