package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
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
		if revision > 0 && unchanged(value, next) { // asked for twice, it is one change
			stragglers, err := c.confirm(ctx, revision)
			if err != nil {
				return nil, nil, err
			}
			return &client.ConfigReply{Revision: revision, Settings: next, Stragglers: stragglers}, nil, nil
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
		c.endAllStale(ctx)
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
	tree, err := settingsTree(stored)
	if err != nil {
		return policy.Settings{}, err
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return policy.Settings{}, invalid("value of %q is not JSON: %v", path, err)
	}
	keys := strings.Split(path, ".")
	holder, last := holderOf(tree, keys), keys[len(keys)-1]
	if holder == nil {
		return policy.Settings{}, invalid("unknown setting %q: `entail config get` lists them", path)
	}
	if m := leftOut(holder[last], v); m != "" {
		return policy.Settings{}, invalid("set %q to %s: it leaves out %q: give it whole, or set %q alone; `entail config get` shows what is there", path, value, m, path+"."+m)
	}
	holder[last] = v
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

// unchanged reports whether settings say what is stored, whoever stored it.
func unchanged(stored []byte, next policy.Settings) bool {
	was, err := policy.ParseSettings(stored)
	was.By, was.At, next.By, next.At = nil, 0, nil, 0
	return err == nil && reflect.DeepEqual(was, next)
}

// settingsTree is the JSON of stored settings with what they leave to the defaults.
func settingsTree(stored []byte) (tree map[string]any, err error) {
	s, err := policy.ParseSettings(stored)
	if err != nil {
		return nil, err
	}
	whole, err := s.Encode()
	if err == nil {
		err = json.Unmarshal(whole, &tree)
	}
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	return tree, nil
}

// holderOf finds the object that has the last of the keys, or nil.
func holderOf(tree map[string]any, keys []string) map[string]any {
	value, ok := tree[keys[0]]
	if !ok {
		return nil
	}
	if len(keys) == 1 {
		return tree
	}
	below, _ := value.(map[string]any)
	return holderOf(below, keys[1:])
}

// leftOut names a member that the old value has and the new one has not. It would
// read as its default or as nothing, and nobody has asked for that.
func leftOut(old, v any) string {
	was, section := old.(map[string]any)
	now, ok := v.(map[string]any)
	if !section || !ok {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, ok := now[name]; !ok {
			return name
		}
		if deep := leftOut(was[name], now[name]); deep != "" {
			return name + "." + deep
		}
	}
	return ""
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
