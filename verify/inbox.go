package verify

import (
	"slices"

	"github.com/entail-fleet/entail/session"
)

// unread is an accepted message that no turn has consumed.
type unread struct {
	seq    session.Seq
	notice bool // of a child's end: it may overtake others, as a waiting call's result
}

// message takes an accepted message into the inbox. One that comes after the session's end
// is delivered and waits for nobody (SPEC 7.4); a driver's own is no message to it.
func (w *walker) message(d *session.UserMessage, p at) {
	if p.class == session.ClassTurn || w.st.ended {
		return
	}
	w.st.inbox = append(slices.Clip(w.st.inbox), unread{p.seq, d.Source.Kind == session.FromSettled})
}

// consume takes messages out of the inbox: each is there, and none overtakes an earlier
// one (SPEC 7.2).
func (w *walker) consume(d *session.Consumed, p at) {
	for _, seq := range d.Seqs {
		i := slices.IndexFunc(w.st.inbox, func(m unread) bool { return m.seq == seq })
		if i < 0 {
			w.flag("I7", "7.2", p, "consumes message %d, which does not wait to be read", seq)
			continue
		}
		if passed := w.st.inbox[:i]; !w.st.inbox[i].notice && slices.ContainsFunc(passed, func(m unread) bool { return !m.notice }) {
			w.flag("I7", "7.2", p, "consumes message %d before %d, which came earlier", seq, passed[0].seq)
		}
		w.st.inbox = slices.Delete(slices.Clone(w.st.inbox), i, i+1)
	}
}

// cancelled wants a session's end to name what was not read, all of it and nothing else
// (SPEC 7.4).
func (w *walker) cancelled(d *session.End, p at) {
	var left []session.Seq
	for _, m := range w.st.inbox {
		left = append(left, m.seq)
	}
	if !slices.Equal(left, d.Cancelled) {
		w.flag("I7", "7.4", p, "ends the session and cancels the messages %v, unread are %v", d.Cancelled, left)
	}
	w.st.inbox = nil
}
