package sessionstore

import (
	"fmt"

	"github.com/entail-fleet/entail/session"
)

// Owing lists the children of a partition that ended a turn, or ended, without
// their parent's log saying so: a notice or a closing is owed (SPEC 7.3). It
// reads the rows of parents with live children and of those children, no log.
func (s *Store) Owing(partition int) ([]session.ID, error) {
	if _, err := s.partition(partition); err != nil {
		return nil, fmt.Errorf("list owing sessions: %w", err)
	}
	var out []session.ID
	err := s.read(func(snap snapshot) error {
		prefix := inPartition(spaceSlots, partition)
		return scan(snap, prefix, nil, func(key, _ []byte) error {
			parent, err := mustRow(snap, session.ID(key[len(prefix):]))
			if err != nil {
				return err
			}
			for _, slot := range parent.State.Children {
				child, ok, err := readRow(snap, slot.ID)
				if err != nil {
					return err
				}
				if ok && child.owes(slot) {
					out = append(out, slot.ID)
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list owing sessions: %w", err)
	}
	return out, nil
}

// owes reports whether the holder of a slot did something that the slot does not
// know of.
func (r row) owes(slot session.Child) bool {
	s := r.State
	return s.Ended != nil || (s.LastEnd != nil && s.LastEnd.Turn > slot.Noticed)
}

// slots reports whether the session has children that hold one.
func (r row) slots() bool { return r.Begun && !r.stopped() && len(r.State.Children) > 0 }
