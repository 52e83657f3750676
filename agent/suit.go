package agent

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/paths"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// Offer is a part of the file system whose directories a worker offers as
// workspaces of one kind and label (SPEC 7.9): Dir and all below it.
type Offer struct {
	Kind  session.WorkspaceKind
	Label string
	Dir   string
}

// DefaultWorkspace is the label of a workspace that has no other.
const DefaultWorkspace = "default"

// ParseOffer reads [KIND:]LABEL=DIR. The kind is shared unless it is given.
func ParseOffer(text string) (Offer, error) {
	const form = "give LABEL=DIR or host:LABEL=DIR, DIR a whole path, such as files=/srv/files"
	name, dir, ok := strings.Cut(text, "=")
	kind, label, err := client.ParsePlace(name)
	if !ok || err != nil || label == "" || !path.IsAbs(dir) || path.Clean(dir) != dir {
		return Offer{}, fmt.Errorf("workspace %.80q: %s", text, form)
	}
	return Offer{Kind: kind, Label: label, Dir: dir}, nil
}

// String writes an offer as ParseOffer reads it.
func (o Offer) String() string { return client.PlaceText(o.Kind, o.Label) + "=" + o.Dir }

// has reports whether a workspace is one of those that are offered: by its name, and
// by where its directory really is, so that no link leads out of the offer.
func (o Offer) has(w session.Workspace) bool {
	if o.Kind != w.Kind || o.Label != w.Label || !paths.Within(w.Path, o.Dir) {
		return false
	}
	if o.Dir == "/" {
		return true
	}
	at, err := filepath.EvalSymlinks(w.Path)
	if err != nil {
		return true // it is not there, which its mark will say
	}
	in, err := filepath.EvalSymlinks(o.Dir)
	return err == nil && paths.Within(at, in)
}

// unsuitedError says that a worker may not drive a session for want of something
// that another one may have.
type unsuitedError struct {
	waits []session.Wait // what for
	err   error
}

func (e *unsuitedError) Error() string { return e.err.Error() }
func (e *unsuitedError) Unwrap() error { return e.err }

// waitsFor lists what a session waits for that was left for a reason.
func waitsFor(why error) []session.Wait {
	if e, ok := errors.AsType[*unsuitedError](why); ok {
		return e.waits
	}
	return nil
}

// suits says why this worker may not drive a session, if it may not: it must hold its
// calls by what the session asks for, offer its labels, and reach its place before it
// claims it (SPEC 5.4, 7.9). The first to drive a root marks the place; from then on
// the mark must be there, for the root and for all below it. Ending a session needs
// none of it.
func (w *Worker) suits(s session.State) error {
	if s.Stopping() {
		return nil
	}
	var lacks []string
	var waits []session.Wait
	if n := s.Header.Needs; n != nil && !ignoreNeeds {
		for _, l := range n.Labels {
			if !slices.Contains(w.cfg.Labels, l) {
				lacks, waits = append(lacks, "label "+l), append(waits, session.Wait{Kind: client.WaitLabel, ID: l})
			}
		}
		if own := w.pulse.self.Tier; own.Weaker(n.Tier) {
			lacks = append(lacks, fmt.Sprintf("tier %s (it has %s)", n.Tier, orNothing(string(own))))
			waits = append(waits, session.Wait{Kind: client.WaitTier, ID: string(n.Tier)})
		}
	}
	if len(lacks) > 0 {
		return &unsuitedError{waits, fmt.Errorf("this worker lacks what the session needs: %s", strings.Join(lacks, ", "))}
	}
	if err := w.reaches(s); err != nil {
		at := s.Header.Workspace
		return &unsuitedError{[]session.Wait{{Kind: client.WaitWorkspace, ID: client.PlaceText(at.Kind, at.Label) + ":" + at.Path}}, err}
	}
	return nil
}

func (w *Worker) reaches(s session.State) error {
	at := s.Header.Workspace
	if !ignoreOffers && !slices.ContainsFunc(w.cfg.Offers, func(o Offer) bool { return o.has(at) }) {
		return fmt.Errorf("%w: this worker does not offer %s in workspace %s (it offers %s)", sandbox.ErrElsewhere, at.Path,
			client.PlaceText(at.Kind, at.Label), strings.Join(offerTexts(w.cfg.Offers), " "))
	}
	if s.Epoch == 0 && s.Header.ID.IsRoot() {
		return sandbox.Mark(at.Path, at.ID)
	}
	return sandbox.CheckMark(at.Path, at.ID)
}

func offerTexts(offers []Offer) []string {
	out := make([]string, len(offers))
	for i, o := range offers {
		out[i] = o.String()
	}
	return out
}

func orNothing(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
