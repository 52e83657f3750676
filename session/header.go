package session

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
)

// Header holds the immutable facts fixed at creation (SPEC 1.1). It never holds
// policy. Its line is the first of a session's own section, and the base of its
// links.
type Header struct {
	Type                string    `json:"type"` // always "session"
	ID                  ID        `json:"id"`
	Tenant              string    `json:"tenant"`
	Root                ID        `json:"root"`
	ParentSession       ID        `json:"parentSession,omitempty"`
	Origin              Origin    `json:"origin"`
	Cwd                 string    `json:"cwd"`
	Workspace           Workspace `json:"workspace"`
	DelegationDepth     int       `json:"delegationDepth"`
	InheritedEventCount Seq       `json:"inheritedEventCount"`
	FirstLiveSeq        Seq       `json:"firstLiveSeq"`
	CreatedAt           int64     `json:"createdAt"`
	CreatedBy           Party     `json:"createdBy"`
	Request             string    `json:"request"`
	Surface             Surface   `json:"surface"`
	Label               string    `json:"label,omitempty"`
	FormatVersion       int       `json:"formatVersion"`
	Traceparent         string    `json:"traceparent,omitempty"`
	Needs               *Needs    `json:"needs,omitempty"`
}

// Needs is what a worker must have to drive a session, beside its workspace (SPEC
// 5.4, 7.9). A child has its parent's: a delegation can neither drop nor widen them.
type Needs struct {
	// Labels are those that the worker must offer, in order.
	Labels []string `json:"labels,omitempty"`
	// Tier is the weakest fence that the session's confined calls may run under.
	Tier Tier `json:"tier,omitempty"`
}

// MaxLabels bounds the labels of one session, or worker.
const MaxLabels = 16

// CheckLabel holds a worker's label to its form: a word of 1 to 64 lower-case
// letters, digits and -_./=.
func CheckLabel(label string) error {
	const most = 64
	if label == "" || len(label) > most || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_./=") != "" {
		return fmt.Errorf("label %s is not a word of 1 to %d lower-case letters, digits and -_./=", quote(label), most)
	}
	return nil
}

// Check holds needs to their form.
func (n Needs) Check() error {
	switch {
	case len(n.Labels) == 0 && n.Tier == "":
		return errors.New("needs name nothing")
	case len(n.Labels) > MaxLabels:
		return fmt.Errorf("needs name %d labels, at most %d", len(n.Labels), MaxLabels)
	case n.Tier != "" && !slices.Contains(Tiers(), n.Tier):
		return fmt.Errorf("unknown tier %s (available: %s, %s, %s)", quote(string(n.Tier)), TierNamespaces, TierUID, TierLandlock)
	}
	for i, l := range n.Labels {
		if err := CheckLabel(l); err != nil {
			return err
		}
		if i > 0 && n.Labels[i-1] >= l {
			return fmt.Errorf("label %s is out of order or there twice", quote(l))
		}
	}
	return nil
}

// Equal reports whether two sessions need the same of a worker.
func (n *Needs) Equal(o *Needs) bool {
	if n == nil || o == nil {
		return n == o
	}
	return n.Tier == o.Tier && slices.Equal(n.Labels, o.Labels)
}

// Workspace is the place a session works in (SPEC 7.9).
type Workspace struct {
	Kind  WorkspaceKind `json:"kind"`
	Label string        `json:"label"`
	Path  string        `json:"path"`
	ID    string        `json:"id"`
}

// WorkspaceKind says whether a workspace is one host's or reached from many.
type WorkspaceKind string

// The kinds of workspace.
const (
	WorkspaceShared WorkspaceKind = "shared"
	WorkspaceHost   WorkspaceKind = "host"
)

// The formats. A session is written in the first one that has all it uses, so that
// an earlier build refuses by name what it would not keep to, and reads the rest.
const (
	// FormatFirst is the first format.
	FormatFirst = 1
	// FormatNeeds is the first with Header.Needs.
	FormatNeeds = 2
	// FormatVersion is the newest that this build reads.
	FormatVersion = FormatNeeds
)

// EncodeHeader writes the header line, without a newline.
func EncodeHeader(h Header) ([]byte, error) {
	h.Type = "session"
	if err := h.check(); err != nil {
		return nil, err
	}
	const usual = 768 // bytes
	line, _ := headerCodec.encode(make([]byte, 0, usual), &h)
	return line, nil
}

// headerCodec is a table: built once, never written again.
var headerCodec = codecOf(reflect.TypeFor[Header]())

// DecodeHeader reads what EncodeHeader wrote.
func DecodeHeader(line []byte) (Header, error) {
	var h Header
	r := &reader{data: line}
	err := headerCodec.decode(r, &h)
	if err == nil && r.at < len(line) {
		err = r.fail("something follows the line")
	}
	if err != nil {
		return Header{}, fmt.Errorf("header line %s: %w", quote(string(line)), err)
	}
	if err := h.check(); err != nil {
		return Header{}, err
	}
	return h, nil
}

func (h Header) check() error {
	if h.Type != "session" {
		return fmt.Errorf("header has type %s, want session", quote(h.Type))
	}
	for _, id := range []ID{h.ID, h.Root} {
		if _, err := ParseID(string(id)); err != nil {
			return fmt.Errorf("header: %w", err)
		}
	}
	if h.ID.Root() != h.Root || !h.Root.IsRoot() {
		return fmt.Errorf("header: session %s is not of root %s", h.ID, h.Root)
	}
	if err := firstErr(h.checkLineage(), party(&h.CreatedBy)); err != nil {
		return fmt.Errorf("header of %s: %w", h.ID, err)
	}
	if err := h.checkPlace(); err != nil {
		return fmt.Errorf("header of %s: %w", h.ID, err)
	}
	return nil
}

// checkLineage holds the facts about where a session comes from to SPEC 1.1,
// 1.2 and 1.8.
func (h Header) checkLineage() error {
	switch {
	case h.Origin == OriginSubagent && h.ParentSession == "":
		return errors.New("a subagent has a parent session")
	case h.Origin == OriginSubagent && h.DelegationDepth < 1:
		return errors.New("a subagent has a delegation depth of at least 1")
	case h.Origin == OriginUser && h.ParentSession == "" && !h.ID.IsRoot():
		return errors.New("a session without a parent is a root")
	case h.Origin == OriginImport && h.ParentSession != "":
		return errors.New("an import has no parent session")
	case h.Origin != OriginUser && h.Origin != OriginSubagent && h.Origin != OriginImport:
		return fmt.Errorf("unknown origin %s", quote(string(h.Origin)))
	case h.ID.IsRoot() && (h.DelegationDepth != 0 || h.ParentSession != ""):
		return errors.New("a root has no parent and depth 0")
	case h.DelegationDepth < 0:
		return errors.New("delegation depth is negative")
	case h.FirstLiveSeq < h.InheritedEventCount:
		return errors.New("firstLiveSeq is below inheritedEventCount")
	case h.ParentSession == "" && h.InheritedEventCount > 0:
		return errors.New("a prefix without a parent session")
	case h.Origin != OriginImport && h.FirstLiveSeq != h.InheritedEventCount:
		return errors.New("firstLiveSeq and inheritedEventCount differ only in an import")
	}
	if h.ParentSession != "" {
		if _, err := ParseID(string(h.ParentSession)); err != nil || h.ParentSession.Root() != h.Root {
			return fmt.Errorf("parent session %s is not of root %s", quote(string(h.ParentSession)), h.Root)
		}
	}
	return nil
}

func (h Header) checkPlace() error {
	switch {
	case !path.IsAbs(h.Cwd) || path.Clean(h.Cwd) != h.Cwd || h.Cwd == "/":
		return fmt.Errorf("cwd %s is not a canonical absolute path below /", quote(h.Cwd))
	case h.Workspace.Kind != WorkspaceShared && h.Workspace.Kind != WorkspaceHost:
		return fmt.Errorf("unknown workspace kind %s", quote(string(h.Workspace.Kind)))
	case h.Workspace.Path == "" || h.Workspace.ID == "":
		return errors.New("workspace has no path or no id")
	case !printable(h.Cwd + h.Workspace.Label + h.Workspace.Path + h.Workspace.ID + h.Traceparent):
		return errors.New("cwd, workspace or traceparent holds control characters or bytes that are no UTF-8")
	case h.Surface != SurfaceNone && h.Surface != SurfaceAny:
		return fmt.Errorf("unknown surface %s", quote(string(h.Surface)))
	case h.FormatVersion < 1:
		return fmt.Errorf("format version %d is not positive", h.FormatVersion)
	case h.Needs != nil && h.FormatVersion < FormatNeeds:
		return fmt.Errorf("needs stand in format %d and later, this is format %d", FormatNeeds, h.FormatVersion)
	case len(h.Request) != 2*len(Link{}) || !isHex(h.Request):
		return errors.New("request digest is not 64 hex digits")
	case h.Tenant == "" || !oneToken(h.Tenant):
		return fmt.Errorf("tenant %s is not one NATS token", quote(h.Tenant))
	case h.Label != "" && (len(h.Label) > MaxName || !printable(h.Label)):
		return fmt.Errorf("label %s must have at most %d bytes without control characters", quote(h.Label), MaxName)
	case h.Needs != nil:
		return h.Needs.Check()
	}
	return nil
}

// oneToken reports whether s can stand between two dots of a subject.
func oneToken(s string) bool {
	if len(s) > 64 || !printable(s) {
		return false
	}
	for _, r := range s {
		if r == '.' || r == '*' || r == '>' || r == ' ' {
			return false
		}
	}
	return true
}

// Seeded reports whether the session carries session/end-seed as its first own
// event.
func (h Header) Seeded() bool { return h.FirstLiveSeq > 0 }

// IsChild reports whether the session is somebody's child: it holds a slot, its
// end is told to its parent, and its parent may speak to it (SPEC 1.8).
func (h Header) IsChild() bool { return h.Origin == OriginSubagent }
