package sessionstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/entail-fleet/entail/session"
)

// encodeEvent writes what is kept of an event: link, class, a zero byte, line.
func encodeEvent(e session.Event) []byte {
	b := make([]byte, 0, len(e.Link)+len(e.Class)+1+len(e.Line))
	b = append(b, e.Link[:]...)
	b = append(b, e.Class...)
	b = append(b, 0)
	return append(b, e.Line...)
}

// decodeEvent reads what encodeEvent wrote. The result shares nothing with value.
func decodeEvent(id session.ID, seq session.Seq, value []byte) (session.Event, error) {
	var link session.Link
	if len(value) < len(link) {
		return session.Event{}, damaged("event of "+string(id), seq, errors.New("it is cut off"))
	}
	copy(link[:], value)
	class, line, ok := bytes.Cut(value[len(link):], []byte{0})
	if !ok {
		return session.Event{}, damaged("event of "+string(id), seq, errors.New("it has no class"))
	}
	e, err := session.DecodeEvent(bytes.Clone(line))
	if err == nil && e.Seq != seq {
		err = fmt.Errorf("its line says seq %d", e.Seq)
	}
	if err != nil {
		return session.Event{}, damaged("event of "+string(id), seq, err)
	}
	e.Session, e.Class, e.Link = id, session.Class(class), link
	return e, nil
}

// readLink finds the link after an own event of a session.
func readLink(r pebble.Reader, id session.ID, seq session.Seq) (link session.Link, ok bool, err error) {
	value, closer, err := r.Get(eventKey(id, seq))
	if errors.Is(err, pebble.ErrNotFound) {
		return link, false, nil
	}
	if err != nil {
		return link, false, fmt.Errorf("read event %d of %s: %w", seq, id, readError(err))
	}
	if copy(link[:], value) < len(link) {
		err = damaged("event of "+string(id), seq, errors.New("it is cut off"))
	}
	return link, err == nil, errors.Join(err, closer.Close())
}

// readMessage finds the event that accepted a message.
func readMessage(r pebble.Reader, id session.ID, message string) (seq session.Seq, ok bool, err error) {
	value, closer, err := r.Get(messageKey(id, message))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read message %q of %s: %w", message, id, readError(err))
	}
	if len(value) == 8 {
		seq = session.Seq(binary.BigEndian.Uint64(value))
	} else {
		err = damaged("message of "+string(id), message, errors.New("it holds no seq"))
	}
	return seq, err == nil, errors.Join(err, closer.Close())
}
