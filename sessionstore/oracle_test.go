package sessionstore_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/sessionstore"
)

// oracle knows what a mirror holds that was given exactly the first records of a
// stream, one after the other and never disturbed: every key and its value.
type oracle struct {
	raws []session.Raw
	held []map[string]string // after so many records
}

func newOracle(t testing.TB, raws []session.Raw) *oracle {
	t.Helper()
	s, err := sessionstore.Open(sessionstore.Config{Dir: "fresh", FS: vfs.NewMem()})
	if err != nil {
		t.Fatalf("open a fresh mirror: %v", err)
	}
	defer s.Close()
	o := &oracle{raws: raws}
	for n := range len(raws) + 1 {
		if n > 0 {
			apply(t, s, raws[n-1:n])
		}
		held, err := sessionstore.Dump(s)
		if err != nil {
			t.Fatalf("dump a fresh mirror: %v", err)
		}
		if n > 0 { // most values are those from before: keep one copy
			for k, v := range held {
				if was, ok := o.held[n-1][k]; ok && was == v {
					held[k] = was
				}
			}
		}
		o.held = append(o.held, held)
	}
	return o
}

// end is how many records there are.
func (o *oracle) end() uint64 { return uint64(len(o.raws)) }

// prefix holds a store to the records up to its watermark: key for key, byte for
// byte, what a mirror holds that was given just these. It returns the watermark,
// and a *shortError if the store holds something else and has not said so.
func (o *oracle) prefix(s *sessionstore.Store) (uint64, error) {
	mark, _ := s.Watermark(0)
	if mark.Seq > o.end() {
		return mark.Seq, short("watermark %d is beyond what was applied", mark.Seq)
	}
	got, err := sessionstore.Dump(s)
	if err != nil {
		return mark.Seq, err
	}
	return mark.Seq, sameKeys(o.held[mark.Seq], got)
}

// sameKeys names the first key in which two stores differ.
func sameKeys(want, got map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(want)) {
		v, held := got[k]
		switch {
		case !held:
			return short("key %q is missing", k)
		case v != want[k]:
			return short("key %q holds\n%q, want\n%q", k, v, want[k])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(got)) {
		if _, known := want[k]; !known {
			return short("key %q is one too many", k)
		}
	}
	return nil
}

// smallTables make Pebble roll its memtables and compact while a few hundred
// kilobytes are written.
func smallTables(o *pebble.Options) {
	o.MemTableSize = 64 << 10
	o.L0CompactionThreshold = 2
	o.LBaseMaxBytes = 64 << 10
}

// troubled are the records of a random tree, the same in every run, among them
// what stops a session, what no session wrote, a second genesis and a session
// that a newer build wrote.
func troubled(t sessiontest.T, seed uint64, steps int) []session.Raw {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	raws := sessiontest.Generate(t, r.IntN, steps).Records
	return trouble(raws, r.IntN)
}

// trouble puts records into a stream that stop a session, or are no session's.
func trouble(raws []session.Raw, pick sessiontest.Pick) []session.Raw {
	for range 1 + len(raws)/15 {
		at := 1 + pick(len(raws))
		hit := raws[pick(at)]
		bad := session.Raw{Address: session.Address{Session: hit.Address.Space()}, Headers: map[string]string{session.HeaderFormat: "1"}}
		switch pick(6) {
		case 0:
			bad.Address = session.Address{Session: "junk", Class: session.ClassTurn}
		case 1:
			bad.Address.Class = session.ClassPolicy // which stops the session
		case 2: // a genesis of a newer build, in front of the one of this build
			next := slices.IndexFunc(raws[at:], func(r session.Raw) bool { return r.Address.Class == session.ClassGenesis })
			if next < 0 {
				continue
			}
			at += next
			bad = raws[at]
			bad.Headers = maps.Clone(bad.Headers)
			bad.Headers[session.HeaderFormat] = "2"
		case 3: // a genesis that does not decode
			bad.Address = hit.Address
			bad.Address.Class = session.ClassGenesis
			if bad.Address.Creator == "" {
				bad.Address.Creator = hit.Address.Session
			}
		case 4:
			bad.Address.Class, bad.Body = session.ClassTurn, []byte("{}\n")
		case 5:
			bad = hit // written again
		}
		raws = slices.Insert(slices.Clone(raws), at, bad)
	}
	for i := range raws {
		raws[i].StreamSeq = uint64(i + 1)
	}
	return raws
}
