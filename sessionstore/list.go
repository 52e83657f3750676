package sessionstore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/entail-fleet/entail/session"
)

// ListOptions says which sessions to list. The zero value lists all.
type ListOptions struct {
	// Root limits the list to one tree.
	Root session.ID
	// Parent limits the list to sessions whose header names it, forks by a
	// person included.
	Parent session.ID
	// Origin limits the list to one origin.
	Origin session.Origin
	// After is the last session of the page before.
	After session.ID
	// Limit is the most sessions to return. Default: all.
	Limit int
}

// Session returns what is known of one session, stopped or not.
func (s *Store) Session(id session.ID) (Entry, error) {
	r, err := s.row(id)
	if err != nil {
		return Entry{}, fmt.Errorf("session %s: %w", id, err)
	}
	return r.entry(), nil
}

// row returns the newest row of one session.
func (s *Store) row(id session.ID) (row, error) {
	if err := s.enter(); err != nil {
		return row{}, err
	}
	defer s.leave()
	if r, ok := s.cache.get(id); ok {
		return r, nil
	}
	r, ok, err := readRow(s.db, id)
	if err == nil && !ok {
		err = session.ErrNotFound
	}
	return r, err
}

func mustRow(snap snapshot, id session.ID) (row, error) {
	r, ok, err := snap.current(id)
	if err == nil && !ok {
		err = session.ErrNotFound
	}
	return r, err
}

// Sessions lists sessions by creation time, then id. It reads rows, never a log;
// stopped sessions are among them.
func (s *Store) Sessions(o ListOptions) ([]Entry, error) {
	var out []Entry
	err := s.read(func(snap snapshot) error {
		return listRows(snap, o, func(r row) error {
			out = append(out, r.entry())
			if len(out) == o.Limit {
				return errStop
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return out, nil
}

// Children lists the sessions that parent delegated to, by creation time, then
// id. Forks by a person are nobody's children.
func (s *Store) Children(parent session.ID) ([]Entry, error) {
	var out []Entry
	err := s.read(func(snap snapshot) error {
		return listRows(snap, ListOptions{Parent: parent}, func(r row) error {
			if r.child() {
				out = append(out, r.entry())
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list children of %s: %w", parent, err)
	}
	return out, nil
}

// listRows calls fn with the rows that o asks for. Of the indexes it takes the one
// with the fewest others.
func listRows(snap snapshot, o ListOptions, fn func(row) error) error {
	prefix := []byte{spaceAll}
	switch {
	case o.Parent != "":
		prefix = ofSession(spaceParent, o.Parent)
	case o.Root != "":
		prefix = ofSession(spaceTree, o.Root)
	}
	var start []byte
	if o.After != "" {
		r, err := mustRow(snap, o.After)
		if err != nil {
			return fmt.Errorf("after %s: %w", o.After, err)
		}
		start = append(dated(bytes.Clone(prefix), r.State.Header.CreatedAt, r.ID), 0)
	}
	return scan(snap, prefix, start, func(key, _ []byte) error {
		id := datedID(key, prefix)
		r, ok, err := snap.current(id)
		switch {
		case err != nil:
			return err
		case !ok:
			return damaged("session", id, errors.New("an index names it, it is missing"))
		case o.Root != "" && id.Root() != o.Root, o.Origin != "" && r.State.Header.Origin != o.Origin:
			return nil
		}
		return fn(r)
	})
}

// Tree lists the sessions of a tree, each before those below it, and these by
// creation time, then id.
func (s *Store) Tree(root session.ID) ([]Entry, error) {
	var rows []row
	err := s.read(func(snap snapshot) error {
		if _, err := mustRow(snap, root); err != nil {
			return err
		}
		return listRows(snap, ListOptions{Root: root}, func(r row) error {
			rows = append(rows, r)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("tree of %s: %w", root, err)
	}
	return preOrder(rows), nil
}

// preOrder puts rows in pre-order. One whose parent is not among them, as that of
// a session without a readable header, starts a tree of its own.
func preOrder(rows []row) []Entry {
	known := make(map[session.ID]bool, len(rows))
	for _, r := range rows {
		known[r.ID] = true
	}
	below := make(map[session.ID][]row)
	var tops []row
	for _, r := range rows {
		if p := r.parent(); known[p] && p != r.ID {
			below[p] = append(below[p], r)
		} else {
			tops = append(tops, r)
		}
	}
	out := make([]Entry, 0, len(rows))
	var visit func([]row)
	visit = func(rows []row) {
		for _, r := range rows {
			out = append(out, r.entry())
			visit(below[r.ID])
		}
	}
	visit(tops)
	return out
}

// TreeSize is how many sessions a tree has.
func (s *Store) TreeSize(root session.ID) (int, error) {
	n, err := s.trees.size(root, func() (n int, err error) {
		err = s.read(func(snap snapshot) error {
			return scan(snap, ofSession(spaceTree, root), nil, func(_, _ []byte) error {
				n++
				return nil
			})
		})
		return n, err
	})
	if err != nil {
		return 0, fmt.Errorf("size of tree %s: %w", root, err)
	}
	return n, nil
}

// Runnable lists the sessions of a partition that a driver has something to do
// for: those whose state is runnable and that are not stopped.
func (s *Store) Runnable(partition int) ([]session.ID, error) {
	return s.flagged(partition, spaceRunnable, "runnable")
}

// Asking lists the sessions of a partition in which a question waits for a person
// (SPEC 5.6), by id.
func (s *Store) Asking(partition int) ([]session.ID, error) {
	return s.flagged(partition, spaceAsking, "asking")
}

// flagged lists the sessions of a partition that have a key in a space.
func (s *Store) flagged(partition int, space byte, what string) ([]session.ID, error) {
	if _, err := s.partition(partition); err != nil {
		return nil, fmt.Errorf("list %s sessions: %w", what, err)
	}
	var out []session.ID
	err := s.read(func(snap snapshot) error {
		prefix := inPartition(space, partition)
		return scan(snap, prefix, nil, func(key, _ []byte) error {
			out = append(out, session.ID(key[len(prefix):]))
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list %s sessions: %w", what, err)
	}
	return out, nil
}
