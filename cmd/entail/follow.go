package main

import (
	"context"
	"slices"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// longPoll is how long the coordinator holds a question for new events, in
// milliseconds.
const longPoll = 200

// follower reads the logs of a tree as they grow.
type follower struct {
	d    *deployment
	root session.ID
	// event is called with each event of each session, in order within one.
	event func(client.Summary, logged)
	// look is called with the tree after each look at it.
	look func([]client.Summary)

	seen map[session.ID]session.Seq
	told map[session.ID]int // the last turn of a child that its parent was told of
}

func newFollower(d *deployment, root session.ID) *follower {
	return &follower{
		d: d, root: root, event: func(client.Summary, logged) {}, look: func([]client.Summary) {},
		seen: map[session.ID]session.Seq{}, told: map[session.ID]int{},
	}
}

// untilSettled follows until no session of the tree has anything left to do by
// itself, and returns the tree as it is then, the root first.
func (f *follower) untilSettled(ctx context.Context) ([]client.Summary, error) {
	for {
		tree, err := f.d.tree(ctx, f.root)
		if err != nil {
			return nil, err
		}
		grown := false
		for _, s := range tree {
			n, err := f.read(ctx, s)
			if err != nil && client.CodeOf(err) != client.CodeStopped {
				return nil, err
			}
			grown = grown || n > 0
		}
		f.look(tree)
		if grown {
			continue
		}
		if f.settled(tree) {
			return tree, nil
		}
		if err := f.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// wait waits until the root's log grows, a while at most: the rest of the tree is
// looked at again then.
func (f *follower) wait(ctx context.Context) error {
	var reply client.EventsReply
	err := f.d.Call(ctx, client.MethodEvents, client.EventsRequest{
		Head: f.d.head, ID: f.root, From: f.seen[f.root], Limit: 1, Wait: longPoll,
	}, &reply)
	if client.CodeOf(err) == client.CodeStopped { // others may be at work below it
		select {
		case <-time.After(longPoll * time.Millisecond):
			err = nil
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// read hands on what a session's log has gained since the last look. What a fork
// inherited is not shown again.
func (f *follower) read(ctx context.Context, s client.Summary) (int, error) {
	id := s.Header.ID
	if _, ok := f.seen[id]; !ok {
		f.seen[id] = s.Header.FirstLiveSeq
	}
	n := 0
	for f.seen[id] < s.Next {
		var reply client.EventsReply
		err := f.d.Call(ctx, client.MethodEvents, client.EventsRequest{Head: f.d.head, ID: id, From: f.seen[id]}, &reply)
		if err != nil {
			return n, err
		}
		if len(reply.Lines) == 0 {
			return n, nil
		}
		for i, line := range reply.Lines {
			l, err := read(id, reply.Classes[i], line)
			if err != nil {
				return n, err
			}
			f.note(l)
			f.event(s, l)
			n++
		}
		f.seen[id] = reply.Next
	}
	return n, nil
}

// note remembers which ends of children their parents were told of.
func (f *follower) note(l logged) {
	if m, ok := l.payload.(*session.UserMessage); ok && m.Source.Kind == session.FromSettled {
		f.told[m.Source.SenderSessionID] = max(f.told[m.Source.SenderSessionID], m.Source.Turn)
	}
}

// settled reports a tree in which nothing goes on and no parent is owed the
// notice of a child's end, which would wake it.
func (f *follower) settled(tree []client.Summary) bool {
	holds := map[session.ID]bool{}
	for _, s := range tree {
		if !settled(s) {
			return false
		}
		if s.Status != client.StatusStopped {
			for _, child := range s.Children {
				holds[child] = true
			}
		}
	}
	for _, s := range tree {
		owed := s.Status == client.StatusEnded || (s.LastEnd != nil && s.LastEnd.Turn > f.told[s.Header.ID])
		if holds[s.Header.ID] && s.Status != client.StatusStopped && owed {
			return false
		}
	}
	return true
}

// tree lists the sessions of the tree that a session is part of, each before those
// below it.
func (d *deployment) tree(ctx context.Context, id session.ID) ([]client.Summary, error) {
	var all []client.Summary
	err := records{d, id.Root()}.each(ctx, func(s client.Summary) error {
		all = append(all, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(all, func(s client.Summary) bool { return s.Header.ID == id }) {
		if err := d.Call(ctx, client.MethodShow, client.SessionRequest{Head: d.head, ID: id}, nil); err != nil {
			return nil, err
		}
	}
	return preOrder(all), nil
}

// preOrder puts each session before those below it. One whose parent is not among
// them, as that of a session without a readable header, starts a tree of its own.
func preOrder(all []client.Summary) []client.Summary {
	known := make(map[session.ID]bool, len(all))
	for _, s := range all {
		known[s.Header.ID] = true
	}
	below := map[session.ID][]client.Summary{}
	for _, s := range all {
		p := s.Header.ParentSession
		if !known[p] || p == s.Header.ID {
			p = ""
		}
		below[p] = append(below[p], s)
	}
	out := make([]client.Summary, 0, len(all))
	var visit func(session.ID)
	visit = func(parent session.ID) {
		for _, s := range below[parent] {
			out = append(out, s)
			visit(s.Header.ID)
		}
	}
	visit("")
	return out
}
