package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

func (c *Coordinator) configGet(context.Context, caller, client.Head) (*client.ConfigReply, *client.Position, error) {
	d := c.settings()
	return &client.ConfigReply{Revision: d.Revision, Settings: d.Settings}, nil, nil
}

// configSet changes one setting and answers once every live worker has confirmed
// the new revision or its lease has run out: after that no decision is committed
// under the old one (SPEC 2.1). Stragglers are named.
func (c *Coordinator) configSet(ctx context.Context, who caller, in client.ConfigSetRequest) (*client.ConfigReply, *client.Position, error) {
	for {
		value, revision, err := c.cfg.Log.Settings().Load(ctx)
		if err != nil {
			return nil, nil, err
		}
		next, err := edit(value, in.Path, in.Value)
		if err != nil {
			return nil, nil, err
		}
		next.By, next.At = &who.party, c.now()
		stored, err := next.Encode()
		if err != nil {
			return nil, nil, invalid("set %q to %s: %v; `entail config get` shows what is there", in.Path, in.Value, err)
		}
		made, err := c.cfg.Log.Settings().Update(ctx, stored, revision)
		if errors.Is(err, stream.ErrRevision) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if err := c.useSettings(stored, made); err != nil {
			return nil, nil, err
		}
		stragglers := c.confirm(ctx, made)
		return &client.ConfigReply{Revision: made, Settings: next, Stragglers: stragglers}, nil, nil
	}
}

// confirm waits until no live worker is behind a revision, at most two leases: a
// worker that has not confirmed by then has lost its lease and decides nothing. It
// reads who is alive anew each time: what this coordinator has read before may be
// without a worker that has begun since.
func (c *Coordinator) confirm(ctx context.Context, revision uint64) []string {
	const look = 20 * time.Millisecond
	lease := time.Duration(c.settings().Lease)
	ctx, cancel := context.WithTimeout(ctx, 2*lease)
	defer cancel()
	behind := []string{"unknown: who is alive could not be read"}
	for {
		if values, err := c.cfg.Log.Liveness().All(ctx); err == nil {
			behind = nil
			for worker, a := range listed(values) {
				if a.Revision < revision {
					behind = append(behind, worker)
				}
			}
		}
		if len(behind) == 0 || !delay.For(ctx, look) {
			slices.Sort(behind)
			return behind
		}
	}
}

// edit sets one path of the settings' JSON and reads the whole strictly again.
func edit(stored []byte, path string, value json.RawMessage) (policy.Settings, error) {
	if s := strings.Split(path, "."); slices.Contains([]string{"version", "by", "at"}, s[0]) {
		return policy.Settings{}, invalid("setting %q cannot be set by hand: `entail config get` lists those that can", path)
	}
	var tree map[string]any
	if err := json.Unmarshal(stored, &tree); err != nil {
		return policy.Settings{}, fmt.Errorf("read settings: %w", err)
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return policy.Settings{}, invalid("value of %q is not JSON: %v", path, err)
	}
	if err := setPath(tree, strings.Split(path, "."), v); err != nil {
		return policy.Settings{}, invalid("unknown setting %q: `entail config get` lists them", path)
	}
	edited, err := json.Marshal(tree)
	if err != nil {
		return policy.Settings{}, fmt.Errorf("write settings: %w", err)
	}
	err = client.Decode(edited, new(policy.Settings)) // for its words
	var s policy.Settings
	if err == nil {
		s, err = policy.ParseSettings(edited)
	}
	if err != nil {
		return policy.Settings{}, invalid("set %q to %s: %v; `entail config get` shows what is there", path, value, err)
	}
	return s, nil
}

var errNoPath = errors.New("no such path")

// setPath replaces a value that is there; it adds none.
func setPath(tree map[string]any, path []string, v any) error {
	old, ok := tree[path[0]]
	if !ok {
		return errNoPath
	}
	if len(path) == 1 {
		tree[path[0]] = v
		return nil
	}
	below, ok := old.(map[string]any)
	if !ok {
		return errNoPath
	}
	return setPath(below, path[1:], v)
}

func (c *Coordinator) configHistory(ctx context.Context, _ caller, _ client.Head) (*client.ConfigHistoryReply, *client.Position, error) {
	revisions, err := c.cfg.Log.Settings().History(ctx)
	if err != nil {
		return nil, nil, err
	}
	var reply client.ConfigHistoryReply
	for _, r := range revisions {
		s, err := policy.ParseSettings(r.Value)
		if err != nil {
			return nil, nil, fmt.Errorf("settings at revision %d: %w", r.Revision, err)
		}
		ch := client.ConfigChange{Revision: r.Revision, Time: s.At, Settings: s}
		if s.By != nil {
			ch.By = *s.By
		} else {
			ch.By = session.Party{Kind: session.CoordinatorOwn, ID: "provisioner"}
		}
		reply.Changes = append(reply.Changes, ch)
	}
	return &reply, nil, nil
}
