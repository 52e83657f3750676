package verify

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// clauseLoss marks a fault that is a loss: it stops the session in every class.
const clauseLoss = "1.4 (loss)"

// place says why a record is not the next of the log, by SPEC 1.4; nil if it is.
// A finding without a text is a record that is passed over.
func (w *walker) place(raw session.Raw, r session.Record, err error) *Finding {
	p := at{seq: w.st.next, stream: raw.StreamSeq}
	fault := func(inv, clause, format string, args ...any) *Finding {
		f := w.finding(inv, clause, p, format, args...)
		return &f
	}
	switch {
	case isGenesis(raw, w.h.id):
		if same(raw, w.h.born) {
			return &Finding{}
		}
		return fault("I2", "1.4", "a second genesis")
	case raw.Address.Class == session.ClassSeed && w.h.header.Origin == session.OriginImport:
		return &Finding{} // counted; the run says that it is not checked
	case raw.StreamSeq < w.h.born.StreamSeq:
		return fault(Log, "1.4", "it stands before the session's genesis")
	case err != nil:
		f := w.unreadable(raw, err)
		return &f
	case r.Own.Seq < w.st.next:
		if l, ok := w.h.linkAt(r.Own.Next() - 1); ok && l == r.Own.After {
			return &Finding{}
		}
		return fault(Log, "1.4", "a second history: seq %d stands in the log already", r.Own.Seq)
	case r.Own.Seq > w.st.next && raw.Hole:
		return fault(Log, clauseLoss, "seq %d after seq %d, and records between are gone from the stream", r.Own.Seq, w.st.next)
	case r.Own.Seq > w.st.next:
		return fault(Log, "1.4", "a gap: seq %d where %d comes next", r.Own.Seq, w.st.next)
	case r.Own.Before != w.st.link:
		return fault("I11", "1.4", "its link does not follow from the last valid record's")
	case r.Format != w.st.format:
		return fault(Log, "1.4", "format %d in a session of format %d", r.Format, w.st.format)
	case !w.st.driver(r):
		return fault(Log, "1.4", "it names epoch %d, in force is %d", r.Epoch, w.st.epoch)
	}
	return nil
}

// unreadable tells bytes that are not the linked ones from bytes that were
// written badly.
func (w *walker) unreadable(raw session.Raw, err error) Finding {
	p := at{seq: w.st.next, stream: raw.StreamSeq}
	if c, ok := claimOf(raw); ok {
		p.seq = c.seq
		class, lines := raw.Address.Class, bytes.Split(bytes.TrimSuffix(raw.Body, []byte("\n")), []byte("\n"))
		if class == session.ClassGenesis {
			class, lines = session.ClassTurn, lines[:min(c.count, len(lines))]
		}
		if relink(c.before, raw.Address.Space(), class, lines) != c.after {
			return w.finding("I11", "1.4", p, "its bytes do not give its link: %v", err)
		}
	}
	if errors.Is(err, session.ErrFormat) {
		return w.finding(Log, "1.4", p, "%v", err)
	}
	return w.finding(Log, "1.5", p, "%v", err)
}

// relink computes the link after lines, from their bytes.
func relink(before session.Link, id session.ID, class session.Class, lines [][]byte) session.Link {
	for _, line := range lines {
		before = session.EventLink(before, id, class, line)
	}
	return before
}

// claim is what a record's headers say of its place.
type claim struct {
	seq, next     session.Seq
	count         int
	before, after session.Link
}

func claimOf(raw session.Raw) (claim, bool) {
	seq, err := strconv.ParseUint(raw.Headers[session.HeaderSeq], 10, 64)
	if err != nil {
		return claim{}, false
	}
	n, err := strconv.Atoi(raw.Headers[session.HeaderCount])
	if err != nil || n < 1 {
		return claim{}, false
	}
	b, a, _ := strings.Cut(raw.Headers[session.HeaderLinkName], " ")
	before, err1 := session.ParseLink(b)
	after, err2 := session.ParseLink(a)
	if err1 != nil || err2 != nil {
		return claim{}, false
	}
	return claim{session.Seq(seq), session.Seq(seq) + session.Seq(n), n, before, after}, true
}

func same(a, b session.Raw) bool {
	return a.Address == b.Address && bytes.Equal(a.Body, b.Body) && a.Headers[session.HeaderLinkName] == b.Headers[session.HeaderLinkName] &&
		a.Headers[session.HeaderChildLink] == b.Headers[session.HeaderChildLink]
}

// genesisFault is what stops a session whose genesis cannot be read.
func genesisFault(raw session.Raw, err error) Finding {
	return Finding{Log, "3.1", raw.Address.Session, 0, raw.StreamSeq, "its genesis is not valid: " + err.Error()}
}

// genesis holds a genesis to its subject, its header and its prefix (SPEC 3.1,
// 1.8, I11 across forks).
func (w *walker) genesis(raw session.Raw, r session.Record, p at) *Finding {
	h := r.Birth.Header
	fault := func(inv, clause, format string, args ...any) *Finding {
		f := w.finding(inv, clause, p, format, args...)
		return &f
	}
	switch creator := raw.Address.Creator; {
	case h.IsChild() && creator != h.ParentSession:
		return fault(Log, "3.1", "a child's genesis stands in the space of %s, its header names parent %s", creator, h.ParentSession)
	case !h.IsChild() && creator != h.ID:
		return fault(Log, "1.8", "its genesis stands in the space of %s", creator)
	case h.FormatVersion != r.Format:
		return fault(Log, "1.4", "the record has format %d, the header %d", r.Format, h.FormatVersion)
	case h.Origin == session.OriginImport && h.Seeded():
		return nil // the seed's records are not read here
	}
	var prev session.Link
	if h.InheritedEventCount > 0 {
		if w.h.parent == nil {
			return fault("I11", "1.3", "its prefix is of %s, which has no log", h.ParentSession)
		}
		link, ok := w.h.parent.linkAt(h.InheritedEventCount - 1)
		if !ok {
			return fault("I11", "1.3", "its prefix of %d events is longer than the log of %s", h.InheritedEventCount, h.ParentSession)
		}
		prev = link
	}
	if session.HeaderLink(prev, r.Birth.Line) != r.Birth.First.Before {
		return fault("I11", "1.3", "its first link does not follow from its header and the prefix of %d events", h.InheritedEventCount)
	}
	return nil
}
