// Package damage turns over single bits of what a stopped nats-server keeps of a
// stream, so that tests see what the product makes of a disk that did.
//
// # What stands where
//
// A stream's messages are records in block files, in the order of their sequences,
// each record a length (4 bytes, the highest bit says whether there are headers), a
// sequence (8), a time (8), the subject's length (2), the subject, the headers'
// length (4) and the headers if there are any, the body, and a checksum (8) over
// all of it but the lengths. Numbers are little-endian. Beside the blocks stands an
// index, which a server writes when it stops and believes at its next start if the
// last record's checksum is the one it names.
//
// # What a server does with it
//
// nats-server 2.15 finds a wrong record when it next reads that block:
//
//   - With the index believed nothing is read at start. One whose checksum is wrong
//     is passed over whenever it would be the answer, as if there were none; the
//     server counts it all the same. One whose length is wrong makes the server
//     read the block anew, as it does without an index.
//   - Without the index every block is read at start. A wrong record ends its block:
//     the file is cut in front of it, and what stood behind it is gone too. In an
//     old block that leaves a hole; in the last one the stream is shorter, and the
//     sequences are given out again.
//
// Nothing of it is an error to anybody who asks.
package damage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Store is what one server keeps of one stream. The server must be stopped.
type Store struct {
	dir string
}

// Open finds the store of a stream below a server's data directory.
func Open(data, stream string) (Store, error) {
	var found []string
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "msgs" && filepath.Base(filepath.Dir(path)) == stream {
			found = append(found, path)
		}
		return err
	})
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d directories hold its messages, want one", len(found))
	}
	if err != nil {
		return Store{}, fmt.Errorf("stream %s below %s: %w", stream, data, err)
	}
	return Store{dir: found[0]}, nil
}

// Record is one stored message and where it stands.
type Record struct {
	File    string // the block
	Block   int    // its number, from 0
	Offset  int64
	Size    int64
	Seq     uint64
	Subject string
	Headers []byte // as they are stored
	Body    []byte
}

// Sizes of the parts of a record.
const (
	sizePrefix   = 22
	sizeLength   = 4
	sizeChecksum = 8
)

// Bits of the numbers of a record.
const (
	hasHeaders = 1 << 31 // in its length
	noMessage  = 3 << 62 // in its sequence: it says that another one was deleted
)

// Records reads every record of the store, in the order in which they stand. A
// record that cannot be read ends its block and is an error.
func (s Store) Records() ([]Record, error) {
	blocks, err := s.blocks()
	if err != nil {
		return nil, err
	}
	var out []Record
	for n, file := range blocks {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a block: %w", err)
		}
		for at := int64(0); at < int64(len(text)); {
			r, err := decode(text[at:])
			if err != nil {
				return nil, fmt.Errorf("block %s at byte %d: %w", file, at, err)
			}
			r.File, r.Block, r.Offset = file, n, at
			if at += r.Size; r.Seq&noMessage == 0 {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// blocks lists the block files in order.
func (s Store) blocks() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, "*.blk"))
	if err != nil {
		return nil, fmt.Errorf("list the blocks of %s: %w", s.dir, err)
	}
	number := func(file string) (n int) {
		if _, err := fmt.Sscanf(filepath.Base(file), "%d.blk", &n); err != nil {
			return 0
		}
		return n
	}
	slices.SortFunc(files, func(a, b string) int { return number(a) - number(b) })
	return files, nil
}

// decode reads the record that text begins with.
func decode(text []byte) (Record, error) {
	if len(text) < sizePrefix+sizeChecksum {
		return Record{}, fmt.Errorf("%d bytes are no record", len(text))
	}
	length := binary.LittleEndian.Uint32(text)
	size := int64(length &^ hasHeaders)
	if size < sizePrefix+sizeChecksum || size > int64(len(text)) {
		return Record{}, fmt.Errorf("a record of %d bytes where %d are left", size, len(text))
	}
	r := Record{Size: size, Seq: binary.LittleEndian.Uint64(text[4:])}
	rest := text[sizePrefix : size-sizeChecksum]
	subject, rest, ok := cut(rest, int64(binary.LittleEndian.Uint16(text[20:])))
	r.Subject = string(subject)
	if ok && length&hasHeaders != 0 {
		var n []byte
		if n, rest, ok = cut(rest, sizeLength); ok {
			r.Headers, rest, ok = cut(rest, int64(binary.LittleEndian.Uint32(n)))
		}
	}
	if !ok {
		return Record{}, errors.New("a record whose parts are longer than it")
	}
	r.Headers, r.Body = bytes.Clone(r.Headers), bytes.Clone(rest)
	return r, nil
}

// cut takes the first n bytes off.
func cut(text []byte, n int64) (first, rest []byte, ok bool) {
	if n > int64(len(text)) {
		return nil, nil, false
	}
	return text[:n], text[n:], true
}

// Part is where in a record a bit is turned over.
type Part int

// The parts.
const (
	// Length is the record's own length, which then reaches beyond its block.
	Length Part = iota + 1
	// Headers are the message's headers.
	Headers
	// Body is the message's body.
	Body
	// Checksum is the record's checksum.
	Checksum
)

// Bit is one bit of a file.
type Bit struct {
	File   string
	Offset int64
	Mask   byte
}

// Bit returns the bit of a part that Flip would turn over: of a length one that
// makes the record larger than any block, of the others one in their middle.
func (r Record) Bit(p Part) (Bit, error) {
	end := r.Offset + r.Size - sizeChecksum
	body := end - int64(len(r.Body))
	b := Bit{File: r.File, Mask: 1}
	switch p {
	case Length:
		b.Offset, b.Mask = r.Offset+sizeLength-1, 1<<5
	case Headers:
		if len(r.Headers) == 0 {
			return Bit{}, fmt.Errorf("record %d has no headers", r.Seq)
		}
		b.Offset = body - int64(len(r.Headers)+1)/2
	case Body:
		if len(r.Body) == 0 {
			return Bit{}, fmt.Errorf("record %d has no body", r.Seq)
		}
		b.Offset = body + int64(len(r.Body))/2
	case Checksum:
		b.Offset = end + sizeChecksum/2
	default:
		return Bit{}, fmt.Errorf("unknown part %d of a record", p)
	}
	return b, nil
}

// Flip turns one bit over.
func (b Bit) Flip() error {
	f, err := os.OpenFile(b.File, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("flip a bit: %w", err)
	}
	var at [1]byte
	if _, err = f.ReadAt(at[:], b.Offset); err == nil {
		at[0] ^= b.Mask
		_, err = f.WriteAt(at[:], b.Offset)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("flip a bit at byte %d: %w", b.Offset, err)
	}
	return nil
}

// index is where a server keeps what it need not read the blocks for.
func (s Store) index() string { return filepath.Join(s.dir, "index.db") }

// DropIndex removes the index, as a server leaves the store that was killed before
// it wrote one.
func (s Store) DropIndex() error {
	if err := os.Remove(s.index()); err != nil {
		return fmt.Errorf("drop the index: %w", err)
	}
	return nil
}

// IndexBit returns a bit in the middle of the index.
func (s Store) IndexBit() (Bit, error) {
	info, err := os.Stat(s.index())
	if err != nil {
		return Bit{}, fmt.Errorf("look at the index: %w", err)
	}
	return Bit{File: s.index(), Offset: info.Size() / 2, Mask: 1}, nil
}
