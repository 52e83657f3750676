package broker_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/broker"
)

// seedText is the form of an nkey seed, so that a check for it in an error has
// something to look for.
const seedText = "SUA"

// Credentials that are read are of one of the roles and are written again the same;
// no error quotes what was read.
func FuzzReadCredentials(f *testing.F) {
	id, err := broker.NewIdentity(broker.Worker, "w1")
	if err != nil {
		f.Fatal(err)
	}
	var good bytes.Buffer
	if err := broker.WriteCredentials(&good, broker.Credentials{URL: "nats://127.0.0.1:4222", Role: id.Role, Name: id.Name, Seed: id.Seed}); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add(append(good.Bytes(), "[]"...))
	f.Add(bytes.Replace(good.Bytes(), []byte("worker"), []byte("root"), 1))
	f.Add(bytes.Replace(good.Bytes(), []byte("w1"), []byte("w1.>"), 1))
	f.Add([]byte(`[{"URL":"x","role":"client","name":"client","seed":"SUA"}]`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := broker.ReadCredentials(bytes.NewReader(text))
		if err != nil {
			if i := bytes.Index(text, []byte(seedText)); i >= 0 && len(text) >= i+40 && strings.Contains(err.Error(), string(text[i:i+40])) {
				t.Errorf("the error %q quotes what was read", err)
			}
			return
		}
		var once, twice bytes.Buffer
		if err := broker.WriteCredentials(&once, list...); err != nil {
			t.Fatal(err)
		}
		again, err := broker.ReadCredentials(bytes.NewReader(once.Bytes()))
		if err == nil {
			err = broker.WriteCredentials(&twice, again...)
		}
		if err != nil || once.String() != twice.String() {
			t.Errorf("%d credentials do not come back: %v", len(list), err)
		}
		for _, c := range list {
			if err := (broker.Identity{Role: c.Role, Name: c.Name, Seed: c.Seed}).Validate(); err != nil {
				t.Errorf("credentials that were read: %v", err)
			}
		}
	})
}

// A token file that is read is written again the same.
func FuzzReadTokenFile(f *testing.F) {
	id, err := broker.NewIdentity(broker.Client, "client")
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(f.TempDir(), "token")
	token := broker.TokenFile{Client: broker.Credentials{URL: "nats://127.0.0.1:4222", Role: id.Role, Name: id.Name, Seed: id.Seed}, Token: broker.NewSecret("t")}
	if err := broker.WriteTokenFile(path, token); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.Replace(good, []byte(`"token"`), []byte(`"Token"`), 1))
	f.Add(bytes.Replace(good, []byte(`"token"`), []byte(`"tokem"`), 1))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := broker.ReadTokenFile(path)
		if err != nil {
			return
		}
		if err := broker.WriteTokenFile(path, got); err != nil {
			t.Fatal(err)
		}
		again, err := broker.ReadTokenFile(path)
		if err != nil || !again.Token.Equal(got.Token) || !again.Client.Seed.Equal(got.Client.Seed) || again.Client.URL != got.Client.URL {
			t.Errorf("a token file does not come back: %v", err)
		}
	})
}
