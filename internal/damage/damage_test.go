package damage_test

import (
	"bytes"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/damage"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/stream"
)

// subject is one of a stream that the coordinator may publish to.
const subject = "entail.log.0.00s.00s.inbox"

// stored is a stopped server's store with n messages in it.
func stored(t *testing.T, n int) damage.Store {
	t.Helper()
	dir := t.TempDir()
	b, err := broker.Start(t.Context(), broker.Config{Dir: dir}, natstest.Identities(t))
	if err != nil {
		t.Fatal(err)
	}
	s := natstest.Server{Server: b}
	log, err := stream.New(s.Conn(t, broker.Provisioner, "provisioner"), stream.Config{MaxBytes: 100_000})
	if err == nil {
		err = log.Provision(t.Context(), stream.ProvisionConfig{SettingsBytes: 1 << 20, LiveBytes: 1 << 20})
	}
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(s.Conn(t, broker.Coordinator, "coordinator"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m := &nats.Msg{Subject: subject, Header: nats.Header{"Entail-Seq": {strconv.Itoa(i)}}, Data: fmt.Appendf(nil, "message %d", i)}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	store, err := damage.Open(dir, stream.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestRecordsAreWhatWasPublished(t *testing.T) {
	t.Parallel()
	store := stored(t, 5)
	records, err := store.Records()
	if err != nil || len(records) != 5 {
		t.Fatalf("%d records, %v; want 5", len(records), err)
	}
	for i, r := range records {
		if r.Seq != uint64(i)+1 || r.Subject != subject || string(r.Body) != fmt.Sprintf("message %d", i) ||
			!bytes.Contains(r.Headers, fmt.Appendf(nil, "Entail-Seq: %d\r\n", i)) {
			t.Errorf("record %d is %d on %s with headers %q and body %q", i, r.Seq, r.Subject, r.Headers, r.Body)
		}
	}
}

// One bit is turned over, in the part that was named, and back again.
func TestFlipTurnsOneBitOver(t *testing.T) {
	t.Parallel()
	store := stored(t, 3)
	records, err := store.Records()
	if err != nil {
		t.Fatal(err)
	}
	r := records[1]
	headers := r.Offset + 22 + int64(len(subject)) + 4
	body := headers + int64(len(r.Headers))
	end := r.Offset + r.Size
	for name, want := range map[string]struct {
		part     damage.Part
		from, to int64
	}{
		"length":   {damage.Length, r.Offset, r.Offset + 4},
		"headers":  {damage.Headers, headers, body},
		"body":     {damage.Body, body, end - 8},
		"checksum": {damage.Checksum, end - 8, end},
	} {
		b, err := r.Bit(want.part)
		if err != nil {
			t.Fatal(err)
		}
		before := read(t, r.File)
		if err := b.Flip(); err != nil {
			t.Fatal(err)
		}
		after := read(t, r.File)
		if n, at := differ(before, after); n != 1 || at < want.from || at >= want.to {
			t.Errorf("%s: %d bits differ, at byte %d; want 1 in %d..%d", name, n, at, want.from, want.to-1)
		}
		if err := b.Flip(); err != nil {
			t.Fatal(err)
		}
		if n, _ := differ(before, read(t, r.File)); n != 0 {
			t.Errorf("%s: flipped twice, %d bits differ", name, n)
		}
	}
}

func TestIndex(t *testing.T) {
	t.Parallel()
	store := stored(t, 3)
	b, err := store.IndexBit()
	if err != nil {
		t.Fatal(err)
	}
	before := read(t, b.File)
	if err := b.Flip(); err != nil {
		t.Fatal(err)
	}
	if n, _ := differ(before, read(t, b.File)); n != 1 {
		t.Errorf("%d bits differ, want 1", n)
	}
	if err := store.DropIndex(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.File); !os.IsNotExist(err) {
		t.Errorf("the index is still there: %v", err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// differ counts the bits in which two files of one length differ, and says where
// the last of them is.
func differ(a, b []byte) (n int, at int64) {
	if len(a) != len(b) {
		return 8 * max(len(a), len(b)), 0
	}
	for i := range a {
		if d := bits.OnesCount8(a[i] ^ b[i]); d > 0 {
			n, at = n+d, int64(i)
		}
	}
	return n, at
}
