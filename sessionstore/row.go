package sessionstore

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/entail-fleet/entail/session"
)

// Entry is what the mirror knows of a session without reading its log.
type Entry struct {
	ID session.ID
	// State is what the valid records fold to. It is zero for a session whose
	// genesis was refused.
	State session.State
	// Tail is the stream sequence to expect on an append, Born that of the
	// genesis.
	Tail, Born uint64
	// Halted says where and why the session is stopped, nil if it runs.
	Halted *session.CorruptError
	// Refused is set for a session that a newer build wrote.
	Refused *session.FormatError
	// Voids counts void records.
	Voids int
	// LastTime is the time of the last event, in milliseconds since 1970.
	LastTime int64
}

// Err returns why the session is not served, nil if it is.
func (e Entry) Err() error {
	switch {
	case e.Halted != nil:
		return e.Halted
	case e.Refused != nil:
		return e.Refused
	}
	return nil
}

// row is an Entry as it is stored, with what goes on judging needs.
type row struct {
	ID       session.ID    `json:"id"`
	Creator  session.ID    `json:"creator"` // in whose space the genesis stands
	State    session.State `json:"state,omitzero"`
	Begun    bool          `json:"begun,omitempty"` // the genesis was accepted
	Tail     uint64        `json:"tail"`
	Born     uint64        `json:"born"`
	Halt     *halt         `json:"halt,omitempty"`
	Refused  int           `json:"refused,omitempty"` // the format that is too new
	StopAt   uint64        `json:"stopAt,omitempty"`  // first record that was not judged
	Voids    int           `json:"voids,omitempty"`
	LastTime int64         `json:"lastTime"`
	Records  int           `json:"records"` // in the session's own space
}

// halt is a [session.CorruptError] that survives JSON.
type halt struct {
	Seq       session.Seq `json:"seq"`
	StreamSeq uint64      `json:"streamSeq"`
	Loss      bool        `json:"loss,omitempty"`
	Reason    string      `json:"reason"`
}

func haltOf(e *session.CorruptError) *halt {
	return &halt{Seq: e.Seq, StreamSeq: e.StreamSeq, Loss: e.Loss, Reason: e.Reason.Error()}
}

func (r row) stopped() bool { return r.Halt != nil || r.Refused != 0 }

// runnable leaves a stopped session out: nobody can drive what nobody can fold.
func (r row) runnable() bool { return r.Begun && !r.stopped() && r.State.Runnable() }

// asking reports whether a question about a call of the session waits for an answer.
func (r row) asking() bool { return r.Begun && !r.stopped() && len(r.State.Questions()) > 0 }

func (r row) entry() Entry {
	e := Entry{ID: r.ID, State: r.State, Tail: r.Tail, Born: r.Born, Voids: r.Voids, LastTime: r.LastTime}
	if h := r.Halt; h != nil {
		e.Halted = &session.CorruptError{
			Session: r.ID, Seq: h.Seq, StreamSeq: h.StreamSeq, Loss: h.Loss, Unborn: !r.Begun, Reason: errors.New(h.Reason),
		}
	}
	if r.Refused != 0 {
		e.Refused = &session.FormatError{Session: r.ID, Have: session.FormatVersion, Want: r.Refused}
	}
	return e
}

// parent is the session that the header names, or for one without a header the
// one in whose space its genesis stands.
func (r row) parent() session.ID {
	switch {
	case r.Begun:
		return r.State.Header.ParentSession
	case r.Creator != r.ID:
		return r.Creator
	}
	return ""
}

func (r row) child() bool {
	if r.Begun {
		return r.State.Header.IsChild()
	}
	return r.Creator != r.ID
}

// indexKeys are the keys under which listings find the session.
func (r row) indexKeys() [][]byte {
	at := r.State.Header.CreatedAt
	keys := [][]byte{allKey(at, r.ID), treeKey(r.ID.Root(), at, r.ID)}
	if p := r.parent(); p != "" {
		keys = append(keys, parentKey(p, at, r.ID))
	}
	return keys
}

// readRow reads the row of a session; ok is false for one without a genesis.
func readRow(r pebble.Reader, id session.ID) (out row, ok bool, err error) {
	value, closer, err := r.Get(rowKey(id))
	if errors.Is(err, pebble.ErrNotFound) {
		return row{}, false, nil
	}
	if err != nil {
		return row{}, false, fmt.Errorf("read session %s: %w", id, readError(err))
	}
	out, err = decodeRow(id, value)
	return out, err == nil, errors.Join(err, closer.Close())
}

// decodeRow reads a row, also one that an earlier build wrote in other bytes.
func decodeRow(id session.ID, value []byte) (out row, err error) {
	err = json.Unmarshal(value, &out)
	if err == nil && out.ID != id {
		err = fmt.Errorf("it holds %q", out.ID)
	}
	if err != nil {
		return row{}, damaged("session", id, err)
	}
	return out, nil
}
