package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// Wishes are the settings that whoever starts a deployment may set. An empty one
// keeps what is there.
type Wishes struct {
	DefaultSandbox session.SandboxMode `json:"defaultSandbox,omitempty"`
	Reviewer       policy.Reviewer     `json:"reviewer,omitempty"`
	Lease          time.Duration       `json:"lease,omitempty"`
}

// Validate names the first wish that no deployment can have.
func (w Wishes) Validate() error {
	return w.on(policy.DefaultSettings()).Validate()
}

func (w Wishes) on(s policy.Settings) policy.Settings {
	if w.DefaultSandbox != "" {
		s.Defaults.Sandbox = w.DefaultSandbox
	}
	if w.Reviewer != "" {
		s.Reviewer = w.Reviewer
	}
	if w.Lease != 0 {
		s.Lease = policy.Duration(w.Lease)
	}
	return s
}

// Settle brings the deployment's settings to what is wished for and returns
// them. A deployment that has none gets first.
func Settle(ctx context.Context, log *stream.Log, first policy.Settings, w Wishes, by session.Party) (policy.Settings, error) {
	for {
		value, revision, err := log.Settings().Load(ctx)
		if err != nil {
			return policy.Settings{}, fmt.Errorf("read the deployment's settings: %w", err)
		}
		have := first
		if revision > 0 {
			if have, err = policy.ParseSettings(value); err != nil {
				return policy.Settings{}, fmt.Errorf("settings at revision %d: %w", revision, err)
			}
		}
		want := w.on(have)
		if revision > 0 && want.Defaults == have.Defaults && want.Reviewer == have.Reviewer && want.Lease == have.Lease {
			return have, nil
		}
		want.By, want.At = &by, time.Now().UnixMilli()
		stored, err := want.Encode()
		if err != nil {
			return policy.Settings{}, err
		}
		if _, err := log.Settings().Update(ctx, stored, revision); errors.Is(err, stream.ErrRevision) {
			continue
		} else if err != nil {
			return policy.Settings{}, err
		}
		return want, nil
	}
}
