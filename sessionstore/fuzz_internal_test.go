package sessionstore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// stored gives f the values that a mirror of a random tree holds under keys of one
// kind.
func stored(f *testing.F, space byte, add func(key, value []byte)) {
	f.Helper()
	s, err := Open(Config{Dir: "mirror", FS: vfs.NewMem()})
	if err != nil {
		f.Fatal(err)
	}
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 0))
	if err := s.Apply(0, "stream", sessiontest.Generate(f, r.IntN, 60).Records); err != nil {
		f.Fatal(err)
	}
	n := 0
	err = scan(s.db, []byte{space}, nil, func(key, value []byte) error {
		add(bytes.Clone(key), bytes.Clone(value))
		n++
		return nil
	})
	if err != nil || n == 0 {
		f.Fatalf("%d values under %c, %v", n, space, err)
	}
}

// refused holds the error of a decoder to what a reader can act upon.
func refused(t *testing.T, value []byte, err error) {
	t.Helper()
	if !errors.Is(err, ErrDamaged) {
		t.Fatalf("%q: %v, want ErrDamaged", value, err)
	}
}

// idIn is the session that a key of its space names.
func idIn(key []byte) session.ID {
	id, _, _ := bytes.Cut(key[1:], []byte{0})
	return session.ID(id)
}

func FuzzDecodeRaw(f *testing.F) {
	stored(f, spaceRecord, func(_, value []byte) { f.Add(value) })
	f.Fuzz(func(t *testing.T, value []byte) {
		raw, err := decodeRaw(7, value)
		if err != nil {
			refused(t, value, err)
			return
		}
		again := appendRaw(nil, raw)
		if n, used := binary.Uvarint(value); n > 0 && value[used] == '{' {
			// One of the first builds: read, and never written again.
			return
		}
		if !bytes.Equal(again, value) {
			t.Fatalf("%q is written again as %q", value, again)
		}
	})
}

// What is written is read as it was, whatever the text in it.
func FuzzEncodeRaw(f *testing.F) {
	f.Add("id", "turn", "", "Entail-Seq", "1", "Other", "", []byte("body"))
	f.Fuzz(func(t *testing.T, id, class, creator, name1, value1, name2, value2 string, body []byte) {
		if id != "" && id[0] == '{' {
			return // no session's: its record is kept and never read
		}
		want := session.Raw{
			StreamSeq: 9, Headers: map[string]string{name1: value1, name2: value2}, Body: body,
			Address: session.Address{Session: session.ID(id), Class: session.Class(class), Creator: session.ID(creator)},
		}
		got, err := decodeRaw(9, appendRaw(nil, want))
		if len(body) == 0 {
			got.Body, want.Body = nil, nil
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("%v (-written +read)\n%s", err, diff)
		}
	})
}

// What is kept under a seq is a place, written again as it is, or an event of an
// earlier build, which holds what it is read as.
func FuzzDecodePlaced(f *testing.F) {
	stored(f, spaceEvent, func(key, value []byte) { f.Add(string(idIn(key)), lastUint64(key), value) })
	line, err := session.Encode(3, 1, &session.TurnStart{Turn: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("id", uint64(3), append(append(make([]byte, 32), "turn\x00"...), line...))
	f.Fuzz(func(t *testing.T, id string, seq uint64, value []byte) {
		p, err := decodePlaced(session.ID(id), session.Seq(seq), value)
		if err != nil {
			refused(t, value, err)
			return
		}
		again := encodePlace(session.ID(id), p.place)
		if e := p.event; e != nil {
			again = append(append(append(again[:0], e.Link[:]...), string(e.Class)+"\x00"...), e.Line...)
			if e.Seq != session.Seq(seq) || e.Session != session.ID(id) {
				t.Fatalf("%q, of %s at %d, is event %d of %s", value, id, seq, e.Seq, e.Session)
			}
		}
		if !bytes.Equal(again, value) {
			t.Fatalf("%q is written again as %q", value, again)
		}
	})
}

// A row may have been written by an earlier build in other bytes. Read and written
// again it is the same row, under the id that it was asked for by.
func FuzzDecodeRow(f *testing.F) {
	stored(f, spaceRow, func(_, value []byte) { f.Add(value) })
	f.Fuzz(func(t *testing.T, value []byte) {
		var of struct {
			ID session.ID `json:"id"`
		}
		_ = json.Unmarshal(value, &of) // to ask for the right one
		r, err := decodeRow(of.ID, value)
		if err != nil {
			refused(t, value, err)
			return
		}
		if _, err := decodeRow(of.ID+"x", value); !errors.Is(err, ErrDamaged) {
			t.Fatalf("%q is read as a row of another session: %v", value, err)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("%q cannot be written again: %v", value, err)
		}
		same, err := decodeRow(of.ID, again)
		if err != nil {
			t.Fatalf("%q, written again as %q: %v", value, again, err)
		}
		if twice, err := json.Marshal(same); err != nil || !bytes.Equal(twice, again) {
			t.Fatalf("%q is another row when read again: %q, %v", again, twice, err)
		}
	})
}

func FuzzDecodeWatermark(f *testing.F) {
	stored(f, spaceWatermark, func(_, value []byte) { f.Add(value) })
	f.Fuzz(func(t *testing.T, value []byte) {
		mark, err := decodeWatermark(watermarkKey(3), value)
		if err != nil {
			refused(t, value, err)
			return
		}
		if again, err := json.Marshal(mark); err != nil || !bytes.Equal(again, value) {
			t.Fatalf("%q is written again as %q, %v", value, again, err)
		}
	})
}

func FuzzDecodeAlarm(f *testing.F) {
	stored(f, spaceAlarm, func(_, value []byte) { f.Add(value) })
	f.Fuzz(func(t *testing.T, value []byte) {
		a, err := decodeAlarm("id", 5, value)
		if err != nil {
			refused(t, value, err)
			return
		}
		again, err := json.Marshal(storedAlarm{Types: a.Types, Writer: a.Writer, Reason: a.Reason.Error()})
		if err != nil || !bytes.Equal(again, value) {
			t.Fatalf("%q is written again as %q, %v", value, again, err)
		}
	})
}

func FuzzDecodeStretch(f *testing.F) {
	stored(f, spaceJournal, func(key, value []byte) { f.Add(lastUint64(key), value) })
	f.Fuzz(func(t *testing.T, from uint64, value []byte) {
		e, err := decodeStretch(from, value)
		if err != nil {
			refused(t, value, err)
			return
		}
		if again := e.encode(); !bytes.Equal(again, value) || e.from != from {
			t.Fatalf("%x is written again as %x", value, again)
		}
	})
}
