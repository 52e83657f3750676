package session

// View is a session at one tail: what an append's precondition is evaluated on.
// Link finds the link after an own event; Has reports whether a message id was
// accepted before. Both speak of exactly the log that State folded.
type View struct {
	State State
	Tail  uint64
	Link  func(Seq) (Link, bool)
	Has   func(messageID string) bool
}

// After is the view once a section, which follows its log, was appended at tail.
// State is what the log folds to then.
func (v View) After(s Section, state State, tail uint64) View {
	return View{
		State: state, Tail: tail,
		Link: func(seq Seq) (Link, bool) {
			switch {
			case seq < s.Seq:
				return v.Link(seq)
			case seq < s.Next():
				return s.Events[seq-s.Seq].Link, true
			}
			return Link{}, false
		},
		Has: func(id string) bool {
			for _, e := range s.Events {
				if own, ok := MessageID(e); ok && own == id {
					return true
				}
			}
			return v.Has(id)
		},
	}
}

// MessageID returns the id that an event was accepted under, so that a second one
// is the same request. An answer to a question carries the question's id, not one
// of its own.
func MessageID(e Event) (string, bool) {
	if e.Class != ClassInbox && e.Class != ClassGenesis {
		return "", false
	}
	switch p := e.Payload.(type) {
	case *UserMessage:
		return p.ID, true
	case *Interrupt:
		return p.ID, true
	case *Cancel:
		return p.ID, true
	case *Nudge:
		return p.ID, true
	case *Expired:
		return p.ID, true
	case *Budget:
		return p.ID, true
	case *Closed:
		return p.ID, true
	case *Archived:
		return p.ID, true
	}
	return "", false
}
