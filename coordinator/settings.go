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
		stragglers, err := c.confirm(ctx, made)
		if err != nil {
			return nil, nil, err
		}
		return &client.ConfigReply{Revision: made, Settings: next, Stragglers: stragglers}, nil, nil
	}
}

// confirm waits until no live worker decides under what it has read before a
// revision, and names those that have not confirmed it. It reads who is alive anew
// each time: what this coordinator has read before may be without a worker that has
// begun since.
func (c *Coordinator) confirm(ctx context.Context, revision uint64) (stragglers []string, err error) {
	const look = 100 * time.Millisecond
	for set := time.Now(); ; {
		values, err := c.cfg.Log.Liveness().All(ctx)
		if err == nil {
			stragglers, decide := behind(client.ReadAlive(values), revision, time.Since(set))
			if !decide {
				return stragglers, nil
			}
			err = fmt.Errorf("not confirmed by %s", strings.Join(stragglers, ", "))
		}
		if !delay.For(ctx, look) {
			return nil, fmt.Errorf("revision %d of the settings is set, but calls may still be decided under the one before: %w: %w", revision, err, context.Cause(ctx))
		}
	}
}

// behind names the workers that have not confirmed a revision, and reports whether
// one of them may still decide: for two of its leases after the change at most, and
// they are the worker's own, whatever the settings say of leases now. One that does
// not say its lease may as long as it is listed.
func behind(alive map[string]client.Alive, revision uint64, ago time.Duration) (names []string, decide bool) {
	for worker, a := range alive {
		if a.Revision >= revision {
			continue
		}
		names = append(names, worker)
		decide = decide || a.Lease == 0 || ago < 2*time.Duration(a.Lease)
	}
	slices.Sort(names)
	return names, decide
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
