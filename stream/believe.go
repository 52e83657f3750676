package stream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/entail-fleet/entail/session"
)

// TailWitness is a [Witness] that also speaks of sessions which are not empty. A
// process whose views are read from the stream needs one: a stream that has lost a
// log's end looks like a shorter log, and only a mirror remembers. Beyond returns
// nil if the mirror holds nothing of the session's own space after tail and has
// found the log whole, see [Log.Compare]; a *[session.ConflictError] with the tail
// it holds if that is a later one; and the loss if it has found one. It waits for
// no record.
type TailWitness interface {
	Witness
	Beyond(ctx context.Context, id session.ID, tail uint64) error
}

// believe holds a view to what is known of its session elsewhere, before the first
// append of this process to it and again once it talks to another server process:
// one that was restarted may have lost what it held, and its compare-and-set speaks
// of the last record alone. Server is who is talked to.
func (l *Log) believe(ctx context.Context, space session.ID, view session.View, server string) error {
	var err error
	switch w, remembers := l.cfg.Witness.(TailWitness); {
	case view.Tail == 0 && doubtsEmpty:
		err = l.believeEmpty(ctx, space, view)
	case view.Tail == 0 || !comparesLogs || l.beliefs.hold(space, server):
	case !remembers:
		err = l.Compare(ctx, space, view)
	default:
		if err = w.Beyond(ctx, space, view.Tail); err == nil {
			l.beliefs.note(space, server)
		}
	}
	if conflict, ok := errors.AsType[*session.ConflictError](err); ok {
		// The view that comes next has this tail, or it is lost.
		l.tails.note(space, conflict.Tail)
	}
	return err
}

// Compare finds every event that a view folded in the stream, which is a loss if
// one is not there. A log is read once for each server process that is talked to;
// after that, and after an append, Compare costs nothing.
func (l *Log) Compare(ctx context.Context, id session.ID, view session.View) error {
	server := l.nc.ConnectedServerId()
	if !comparesLogs || l.beliefs.hold(id, server) {
		return nil
	}
	for more := l.again(); ; {
		err := l.compare(ctx, id, view)
		switch {
		case err == nil:
			l.beliefs.note(id, server)
			return nil
		case errors.Is(err, session.ErrLoss), errors.Is(err, session.ErrCorrupt):
			return err
		case !more.wait(ctx):
			return fmt.Errorf("compare %s with the stream: %w", id, err)
		}
	}
}

// errBehind is a read from a copy of the stream that is behind its leader.
var errBehind = errors.New("the copy that was read is behind the leader")

// compare reads a session's own space once.
func (l *Log) compare(ctx context.Context, id session.ID, view session.View) error {
	if view.State.Next == 0 {
		return nil // planted records, which are in no log
	}
	read := cover{view: view}
	if view.State.Header.IsChild() {
		genesis, err := l.Genesis(ctx, id, view.State.Header.ParentSession)
		if err != nil {
			return l.lostGenesis(ctx, id, err)
		}
		read.begin(genesis.Headers, session.HeaderChildSeq, session.HeaderChildCount)
	}
	tail, err := l.Read(ctx, id, 0, func(r session.Raw) error { read.take(r); return nil })
	switch {
	case err != nil:
		return err
	case read.next >= view.State.Next:
		return nil
	case tail < view.Tail:
		if err := l.lost(ctx, id, view.State.Next, view.Tail); err != nil {
			return err
		}
		return errBehind
	}
	return notWhole(view, fmt.Errorf("%w: its seq %d is not in the stream", session.ErrLoss, read.next))
}

// notWhole is the error of a log of which some record cannot be read.
func notWhole(v session.View, reason error) error {
	return &session.CorruptError{
		Session: v.State.Header.ID, Seq: v.State.Next, StreamSeq: v.Tail, Loss: true,
		Reason: fmt.Errorf("the log before that is not whole in the stream: %w", reason),
	}
}

// lost asks the leader whether a session's tail is lower than one that was seen.
func (l *Log) lost(ctx context.Context, id session.ID, next session.Seq, seen uint64) error {
	var now uint64
	there, err := l.shows(ctx, func() (bool, error) {
		last, err := l.Last(ctx, id)
		now = last.StreamSeq
		return !shortened(seen, now), err
	})
	if err != nil || there {
		return err
	}
	return lossOf(id, next, seen, now)
}

// lostGenesis says what it is that a genesis which was folded cannot be read.
func (l *Log) lostGenesis(ctx context.Context, id session.ID, err error) error {
	if !errors.Is(err, session.ErrNotFound) {
		return err
	}
	there, err := l.shows(ctx, func() (bool, error) {
		_, err := l.leader(ctx, id.Partition(), getRequest{LastFor: genesisFilter(id)})
		if errors.Is(err, session.ErrNotFound) {
			return false, nil
		}
		return true, err
	})
	switch {
	case err != nil:
		return err
	case there:
		return errBehind
	}
	return &session.CorruptError{Session: id, Loss: true, Reason: fmt.Errorf("its genesis is not in the stream: %w", session.ErrLoss)}
}

// shows looks at the leader until something is there, for as long as a leader may be
// behind.
func (l *Log) shows(ctx context.Context, look func() (there bool, err error)) (bool, error) {
	for behind := (lag{}); ; {
		there, err := look()
		switch {
		case err != nil || there:
			return there, err
		case behind.wait(ctx, l.cfg.Timeout):
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		default:
			return false, nil
		}
	}
}

// cover is how far the records read so far hold, without a gap, what a view folded.
// Records that the view does not know are passed over: they are void, or newer.
type cover struct {
	view session.View
	next session.Seq
}

// begin takes the section of a session's genesis.
func (c *cover) begin(headers map[string]string, seq, count string) {
	from, errFrom := strconv.ParseUint(headers[seq], 10, 64)
	n, errN := strconv.ParseUint(headers[count], 10, 64)
	if errFrom == nil && errN == nil {
		c.next = session.Seq(from + n)
	}
}

func (c *cover) take(r session.Raw) {
	seq, errSeq := strconv.ParseUint(r.Headers[session.HeaderSeq], 10, 64)
	count, errCount := strconv.ParseUint(r.Headers[session.HeaderCount], 10, 64)
	if errSeq != nil || errCount != nil || count == 0 {
		return
	}
	id := c.view.State.Header.ID
	first := c.next == 0 && r.Address.Class == session.ClassGenesis && r.Address.Session == id
	if !first && session.Seq(seq) != c.next {
		return
	}
	last := session.Seq(seq + count - 1)
	if link, ok := c.view.Link(last); !ok || !ends(r.Headers[session.HeaderLinkName], link) {
		return
	}
	c.next = last + 1
}

// ends reports whether a record's links, "before after", end with one.
func ends(links string, after session.Link) bool {
	return strings.HasSuffix(links, " "+after.String())
}

// beliefs are the sessions that were compared with the stream of one server
// process. Like tails they are bounded; forgetting one costs a comparison.
type beliefs struct {
	mu       sync.Mutex
	server   string                  // guarded by mu
	now, old map[session.ID]struct{} // guarded by mu
}

// hold reports whether a session was compared with what server holds, and forgets
// what was compared with another one. Without a connection server is empty, and what
// was believed of the last one stands: nothing that is sent then arrives.
func (b *beliefs) hold(id session.ID, server string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turnLocked(server)
	_, now := b.now[id]
	_, old := b.old[id]
	return now || old
}

// note remembers that a session was compared, or written whole.
func (b *beliefs) note(id session.ID, server string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turnLocked(server)
	if _, ok := b.now[id]; ok {
		return
	}
	if b.now == nil || len(b.now) >= tailsKept {
		b.now, b.old = make(map[session.ID]struct{}), b.now
	}
	b.now[id] = struct{}{}
}

// turnLocked forgets everything once another server process answers.
func (b *beliefs) turnLocked(server string) {
	if server != "" && server != b.server {
		b.server, b.now, b.old = server, nil, nil
	}
}
