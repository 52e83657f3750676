package delegation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Root is what a new root starts with. The fields with a JSON name are what its
// request digest is of.
type Root struct {
	ID          session.ID        `json:"-"`
	Tenant      string            `json:"-"`
	Workspace   session.Workspace `json:"-"`
	By          session.Party     `json:"-"`
	Time        int64             `json:"-"`
	Traceparent string            `json:"-"`

	Cwd       string                 `json:"cwd"`
	Label     string                 `json:"label,omitempty"`
	Surface   session.Surface        `json:"surface,omitempty"`
	Provider  string                 `json:"provider"`
	Model     string                 `json:"model"`
	Script    string                 `json:"script,omitempty"`
	Prompt    string                 `json:"prompt,omitempty"`
	Sandbox   session.SandboxMode    `json:"sandbox,omitempty"`
	Approvals session.ApprovalPolicy `json:"approvals,omitempty"`
	Preset    session.Preset         `json:"preset,omitempty"`
	// Place is what the request says of the workspace beside its path, which is Cwd.
	Place Place `json:"place,omitzero"`
	// Needs is what a worker must have to drive the tree.
	Needs *session.Needs `json:"needs,omitempty"`
}

// Place names a workspace beside its path. Its zero is the deployment's default.
type Place struct {
	Kind  session.WorkspaceKind `json:"kind,omitempty"`
	Label string                `json:"label,omitempty"`
}

// Genesis composes a root's genesis: header, the policy events of its creation
// flags, the model, and the prompt if there is one (SPEC 1.10).
func (r Root) Genesis(d policy.Deployment) (session.Record, error) {
	digest, err := Digest(r)
	if err != nil {
		return session.Record{}, err
	}
	h := session.Header{
		ID: r.ID, Tenant: r.Tenant, Root: r.ID, Origin: session.OriginUser, Cwd: r.Cwd, Workspace: r.Workspace,
		CreatedAt: r.Time, CreatedBy: r.By, Request: digest, Surface: r.Surface, Label: r.Label,
		FormatVersion: session.FormatFirst, Traceparent: r.Traceparent, Needs: r.Needs,
	}
	if h.Needs != nil {
		h.FormatVersion = session.FormatNeeds
	}
	if h.Surface == "" {
		h.Surface = session.SurfaceNone
	}
	events, err := r.policy(h, d)
	if err != nil {
		return session.Record{}, err
	}
	events = append(events, modelSelected(r.Provider, r.Model, r.Script))
	if r.Prompt != "" {
		if err := CheckPrompt(r.Prompt); err != nil {
			return session.Record{}, err
		}
		events = append(events, prompt(h.ID, r.Prompt, r.By))
	}
	return genesis(h, session.Prefix{}, r.Time, events)
}

// policy turns creation flags into the events that the same switches would
// append, preset first.
func (r Root) policy(h session.Header, d policy.Deployment) ([]session.Payload, error) {
	s := session.State{Header: h}
	var out []session.Payload
	if r.Preset != "" && (r.Sandbox != "" || r.Approvals != "") {
		return nil, invalid("a preset sets sandbox and approvals: give the preset or the two, not both")
	}
	if r.Preset != "" {
		w, err := policy.Select(s, d, r.Preset, r.By)
		if err != nil {
			return nil, err
		}
		out = append(out, w.Events...)
	}
	if r.Sandbox != "" {
		w, err := policy.SwitchSandbox(s, d, r.Sandbox, r.By)
		if err != nil {
			return nil, err
		}
		out = append(out, w.Events...)
	}
	if r.Approvals != "" {
		w, err := policy.SwitchApproval(s, d, r.Approvals, r.By)
		if err != nil {
			return nil, err
		}
		out = append(out, w.Events...)
	}
	return out, nil
}

// Fork is a person's fork of a session (SPEC 1.8).
type Fork struct {
	ID          session.ID    `json:"-"`
	By          session.Party `json:"-"`
	Time        int64         `json:"-"`
	Traceparent string        `json:"-"`

	Source session.ID `json:"source"`
	Label  string     `json:"label,omitempty"`
	Prompt string     `json:"prompt,omitempty"`
}

// Genesis composes a fork's genesis on its source's view: the boundary is the
// last event, so a switch after the last turn comes along; inside an open turn
// it is refused. It writes no policy: the fork's is what its prefix folds to.
func (f Fork) Genesis(source session.State) (session.Record, error) {
	if source.Open != nil {
		return session.Record{}, fmt.Errorf("fork %s: %w: wait for turn %d to end, or interrupt it", f.Source, ErrOpenTurn, source.Turn)
	}
	if f.ID.IsRoot() || f.ID.Root() != source.Header.Root {
		return session.Record{}, invalid("the id of a fork is %s- and a ULID", source.Header.Root)
	}
	digest, err := Digest(f)
	if err != nil {
		return session.Record{}, err
	}
	prefix := source.InheritAll()
	h := source.Header
	h.ID, h.ParentSession, h.Origin = f.ID, f.Source, session.OriginUser
	h.InheritedEventCount, h.FirstLiveSeq = prefix.Count, prefix.Count
	h.CreatedAt, h.CreatedBy, h.Request, h.Label, h.Traceparent = f.Time, f.By, digest, f.Label, f.Traceparent
	events := []session.Payload{&session.EndSeed{Inherited: true}}
	if filter := source.Filter(); filter != nil {
		d := *source.Descriptor
		events = append(events, &d)
	}
	events = append(events, modelBelow(source))
	if f.Prompt != "" {
		if err := CheckPrompt(f.Prompt); err != nil {
			return session.Record{}, err
		}
		events = append(events, prompt(f.ID, f.Prompt, f.By))
	}
	return genesis(h, prefix, f.Time, events)
}

// genesis composes and validates a genesis that stands in its own space.
func genesis(h session.Header, prefix session.Prefix, now int64, events []session.Payload) (session.Record, error) {
	drafts := make([]session.Draft, 0, len(events))
	for _, p := range events {
		drafts = append(drafts, session.Draft{Time: now, Payload: p})
	}
	birth, err := session.ComposeBirth(h, prefix.Link, drafts...)
	if err != nil {
		return session.Record{}, fmt.Errorf("%w: compose %s: %w", ErrInvalid, h.ID, err)
	}
	if _, err := session.Begin(birth, prefix); err != nil {
		return session.Record{}, fmt.Errorf("validate %s: %w", h.ID, err)
	}
	return session.Record{
		Address: session.Address{Session: h.ID, Class: session.ClassGenesis, Creator: h.ID},
		Format:  h.FormatVersion, Birth: &birth,
	}, nil
}

func modelSelected(provider, model, script string) *session.ModelSelected {
	m := &session.ModelSelected{Provider: provider, Model: model}
	if script != "" {
		sum := sha256.Sum256([]byte(script))
		m.Script = &session.Script{Text: script, SHA256: hex.EncodeToString(sum[:])}
	}
	return m
}

func prompt(id session.ID, text string, by session.Party) *session.UserMessage {
	return &session.UserMessage{
		ID: "prompt-" + string(id), Role: "user", Content: text,
		Source: session.MessageSource{Kind: session.FromUser}, By: &by,
	}
}
