package node_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/entail-fleet/entail/internal/node"
)

// An order that is read is of one identity, and reading takes nothing behind it.
func FuzzReadOrder(f *testing.F) {
	frame := func(n uint32, body string) []byte { return append(binary.BigEndian.AppendUint32(nil, n), body...) }
	f.Add(frame(2, "{}more"))
	f.Add(frame(1<<31, "{}"))
	f.Add(frame(4, "null"))
	f.Add(frame(20, `{"credentials":null}`))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bytes.NewReader(text)
		o, err := node.ReadOrder(r)
		if err != nil {
			return
		}
		if used, want := len(text)-r.Len(), 4+int(binary.BigEndian.Uint32(text)); used != want {
			t.Errorf("%d bytes were taken, the order has %d", used, want)
		}
		if o.Credentials.URL == "" {
			t.Error("an order without an address was taken")
		}
	})
}

// Whatever a tokens file holds, it names somebody or is refused.
func FuzzReadTokens(f *testing.F) {
	f.Add([]byte(`[{"Digest":"00","Party":{"kind":"person","id":"ann"},"Role":3}]`))
	f.Add([]byte(`[{"digest":"00","party":null,"role":-1}]`))
	f.Add([]byte(`[null]`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if tokens, err := node.ReadTokens(path); err == nil && len(tokens) == 0 {
			t.Error("a tokens file that names nobody was taken")
		}
	})
}
