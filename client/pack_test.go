package client_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

func rawRecords() []session.Raw {
	return []session.Raw{
		{
			StreamSeq: 1, Address: session.Address{Session: "a", Class: session.ClassGenesis, Creator: "a"},
			Headers: map[string]string{session.HeaderSeq: "0", session.HeaderWriter: "c c0 i1"}, Body: []byte("{}\n{}\n"),
		},
		{StreamSeq: 1 << 40, Address: session.Address{Session: "a", Class: session.ClassTurn}, Headers: map[string]string{}, Body: []byte{}},
		{StreamSeq: 1<<40 + 1, Address: session.Address{Session: "a"}, Headers: map[string]string{"Entail-": ""}, Body: []byte{0, 255, '\n'}},
	}
}

func unpack(b []byte) ([]session.Raw, error) {
	var out []session.Raw
	err := client.Unpack(b, func(r session.Raw) error { out = append(out, r); return nil })
	return out, err
}

func TestPackedRecordsComeBack(t *testing.T) {
	t.Parallel()
	want := rawRecords()
	var b []byte
	for _, r := range want {
		r.Headers["Nats-Expected-Last-Subject-Sequence"] = "9"
		b = client.Pack(b, r)
		delete(r.Headers, "Nats-Expected-Last-Subject-Sequence")
	}
	got, err := unpack(b)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("unpack: %v (-packed +unpacked)\n%s", err, diff)
	}
	enough := errors.New("enough")
	if err := client.Unpack(b, func(session.Raw) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("unpack ended with %v, want the caller's error", err)
	}
}

// A reply that is cut off gives the records before the cut, and says so.
func TestPackedRecordsAreCutOff(t *testing.T) {
	t.Parallel()
	var b []byte
	ends := map[int]int{0: 0}
	for i, r := range rawRecords() {
		b = client.Pack(b, r)
		ends[len(b)] = i + 1
	}
	whole := 0
	for n := range b {
		if at, ok := ends[n]; ok {
			whole = at
			continue
		}
		if got, err := unpack(b[:n:n]); err == nil || len(got) != whole {
			t.Errorf("the first %d of %d bytes: %d records, %v; want %d and an error", n, len(b), len(got), err, whole)
		}
	}
}

// Whatever stands in a reply, reading it ends, and takes no more room than it has.
func FuzzUnpack(f *testing.F) {
	var b []byte
	for _, r := range rawRecords() {
		b = client.Pack(b, r)
	}
	f.Add(b)
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		records, _ := unpack(b)
		for _, r := range records {
			if len(r.Body) > len(b) || len(r.Headers) > len(b) {
				t.Errorf("a record of %d bytes and %d headers out of %d bytes", len(r.Body), len(r.Headers), len(b))
			}
		}
	})
}
