package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/entail-fleet/entail/session"
)

// Settings are the deployment's: one value for the whole of it, owned by the
// operator, changed by compare-and-set, every change kept (SPEC 2.1).
type Settings struct {
	Version     int              `json:"version"`
	Defaults    session.Defaults `json:"defaults"`
	Presets     []Bundle         `json:"presets"`
	Composition Composition      `json:"composition"`
	Caps        Caps             `json:"caps"`
	Reviewer    Reviewer         `json:"reviewer"`
	Confinement Confinement      `json:"confinement"`
	Approvals   Approvals        `json:"approvals"`
	// Lease is how long a claim outlives its worker's last sign of life.
	Lease Duration `json:"lease"`
	// By and At say who made this revision, and when, in milliseconds.
	By *session.Party `json:"by,omitempty"`
	At int64          `json:"at,omitempty"`
}

// SettingsVersion is the one version of Settings that this build reads.
const SettingsVersion = 1

// Bundle is one row of the preset table (SPEC 2.2).
type Bundle struct {
	Name     session.Preset         `json:"name"`
	Sandbox  session.SandboxMode    `json:"sandbox"`
	Approval session.ApprovalPolicy `json:"approval"`
}

// Composition says which of the three capabilities the deployment has. One that
// is left out is neither captured from a default nor written, and asking for it
// is refused; what a log already holds still binds (SPEC 2.6).
type Composition struct {
	Sandbox   bool `json:"sandbox"`
	Approvals bool `json:"approvals"`
	Presets   bool `json:"presets"`
}

// leftOut names what is not composed, as a delegation's decision does.
func (c Composition) leftOut() []session.Capability {
	var out []session.Capability
	if !c.Approvals {
		out = append(out, session.CapabilityApprovals)
	}
	if !c.Presets {
		out = append(out, session.CapabilityPresets)
	}
	if !c.Sandbox {
		out = append(out, session.CapabilitySandbox)
	}
	return out
}

// Approvals says how long people have to answer.
type Approvals struct {
	// ExpireAfter is how long a question waits. After that its outcome is
	// unavailable.
	ExpireAfter Duration `json:"expireAfter"`
}

// minExpiry is the least that a question may wait: somebody has to read it.
const minExpiry = time.Second

// defaultApprovals is a day to answer.
func defaultApprovals() Approvals { return Approvals{ExpireAfter: Duration(24 * time.Hour)} }

// Caps bound what delegations may start (SPEC 4.6).
type Caps struct {
	Depth int `json:"depth"` // of a child below its root
	Live  int `json:"live"`  // children of one parent that hold a slot
	Tree  int `json:"tree"`  // sessions of one tree
	Inbox int `json:"inbox"` // unconsumed messages of one session
}

// Reviewer says who reviews calls under the auto preset (SPEC 6.6).
type Reviewer string

// The reviewers. DelegateOnly lets a delegating call pass, because the child is
// judged anew, and denies every other call with an effect.
const (
	NoReviewer   Reviewer = "none"
	DelegateOnly Reviewer = "delegate-only"
)

// Duration is a time.Duration that reads and writes like "5s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// DefaultSettings is what a deployment starts with: SPEC 2's defaults, the
// shipped preset table, everything composed, SPEC 4.6's caps, no reviewer.
func DefaultSettings() Settings {
	return Settings{
		Version:  SettingsVersion,
		Defaults: session.Defaults{Sandbox: session.ReadOnly, Approval: session.Ask},
		Presets: []Bundle{
			{session.PresetReadOnly, session.ReadOnly, session.Ask},
			{session.PresetWorkspaceWrite, session.WorkspaceWrite, session.Ask},
			{session.PresetAuto, session.DangerFullAccess, session.Never},
			{session.PresetFullAccess, session.DangerFullAccess, session.Never},
		},
		Composition: Composition{Sandbox: true, Approvals: true, Presets: true},
		Caps:        Caps{Depth: 3, Live: 8, Tree: 256, Inbox: 256},
		Reviewer:    NoReviewer,
		Confinement: DefaultConfinement(),
		Approvals:   defaultApprovals(),
		Lease:       Duration(30 * time.Second),
	}
}

// ParseSettings reads settings strictly: an unknown field, a foreign value, null or
// another version is refused. Settings that were stored before there was a
// confinement or an approvals section, or a member of one, have the default there: as
// zero it would be outside of the vocabularies, or no limit.
func ParseSettings(b []byte) (Settings, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	s := Settings{Confinement: DefaultConfinement(), Approvals: defaultApprovals()}
	if err := dec.Decode(&s); err != nil {
		return Settings{}, fmt.Errorf("read settings: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Settings{}, errors.New("read settings: something follows the value")
	}
	var plain any
	if err := json.Unmarshal(b, &plain); err != nil {
		return Settings{}, fmt.Errorf("read settings: %w", err)
	}
	if holdsNull(plain) {
		return Settings{}, errors.New("read settings: null is no value of a setting")
	}
	return s, s.Validate()
}

// holdsNull reports whether there is a null in what a decoder read. Into a Go value
// it would read as nothing: a cap of 0, a capability that is left out.
func holdsNull(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, member := range v {
			if holdsNull(member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, holdsNull)
	}
	return false
}

// Encode writes what ParseSettings reads.
func (s Settings) Encode() ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// Validate checks the settings and names the first thing that is wrong.
func (s Settings) Validate() error {
	switch {
	case s.Version != SettingsVersion:
		return fmt.Errorf("settings have version %d, this build reads %d", s.Version, SettingsVersion)
	case !s.Defaults.Sandbox.Valid():
		return fmt.Errorf("default sandbox %q is not one of %v", s.Defaults.Sandbox, session.SandboxModes())
	case !s.Defaults.Approval.Valid():
		return fmt.Errorf("default approval %q is neither %q nor %q", s.Defaults.Approval, session.Ask, session.Never)
	case s.Reviewer != NoReviewer && s.Reviewer != DelegateOnly:
		return fmt.Errorf("reviewer %q is neither %q nor %q", s.Reviewer, NoReviewer, DelegateOnly)
	case time.Duration(s.Lease) < 500*time.Millisecond || time.Duration(s.Lease) > 10*time.Minute:
		return fmt.Errorf("lease %v is not between 500ms and 10m", time.Duration(s.Lease))
	case s.Caps.Depth < 0 || s.Caps.Live < 0 || s.Caps.Tree < 1 || s.Caps.Inbox < 1:
		return fmt.Errorf("caps %+v: depth and live are at least 0, tree and inbox at least 1", s.Caps)
	case time.Duration(s.Approvals.ExpireAfter) < minExpiry:
		return fmt.Errorf("approvals: expireAfter %v is not at least %v", time.Duration(s.Approvals.ExpireAfter), minExpiry)
	}
	if err := s.Confinement.validate(); err != nil {
		return fmt.Errorf("confinement: %w", err)
	}
	return s.validatePresets()
}

func (s Settings) validatePresets() error {
	seen := map[session.Preset]bool{}
	for _, b := range s.Presets {
		switch {
		case b.Name == "" || b.Name == session.PresetCustom:
			return fmt.Errorf("preset %q is reserved", b.Name)
		case seen[b.Name]:
			return fmt.Errorf("preset %q stands twice in the table", b.Name)
		case !b.Sandbox.Valid() || !b.Approval.Valid():
			return fmt.Errorf("preset %q has an unknown sandbox %q or approval %q", b.Name, b.Sandbox, b.Approval)
		}
		seen[b.Name] = true
	}
	for _, name := range []session.Preset{session.PresetAuto, session.PresetFullAccess} {
		b := s.bundle(name)
		if b == nil || b.Sandbox != session.DangerFullAccess || b.Approval != session.Never {
			return fmt.Errorf("preset %q cannot be redefined or removed", name)
		}
	}
	return nil
}

// bundle finds a row of the table, or nil.
func (s *Settings) bundle(name session.Preset) *Bundle {
	for i := range s.Presets {
		if s.Presets[i].Name == name {
			return &s.Presets[i]
		}
	}
	return nil
}

// PresetNames lists the table's names in order.
func (s Settings) PresetNames() []session.Preset {
	names := make([]session.Preset, 0, len(s.Presets))
	for _, b := range s.Presets {
		names = append(names, b.Name)
	}
	return names
}

// Deployment is the settings as read at one revision.
type Deployment struct {
	Settings
	Revision uint64
	// Hash is of the stored bytes; decisions and geneses name it.
	Hash string
}

// NewDeployment reads stored settings.
func NewDeployment(stored []byte, revision uint64) (Deployment, error) {
	s, err := ParseSettings(stored)
	if err != nil {
		return Deployment{}, err
	}
	sum := sha256.Sum256(stored)
	return Deployment{Settings: s, Revision: revision, Hash: hex.EncodeToString(sum[:8])}, nil
}
