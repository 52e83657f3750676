package broker_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/broker"
)

func newCredentials(t *testing.T, role broker.Role, name string) broker.Credentials {
	t.Helper()
	id, err := broker.NewIdentity(role, name)
	if err != nil {
		t.Fatal(err)
	}
	return broker.Credentials{URL: "nats://127.0.0.1:4222", Role: role, Name: name, Seed: id.Seed}
}

func TestCredentialsCrossAPipe(t *testing.T) {
	t.Parallel()
	want := []broker.Credentials{newCredentials(t, broker.Worker, "w1"), newCredentials(t, broker.Reader, "r")}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := broker.WriteCredentials(w, want...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := broker.ReadCredentials(r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("credentials (-want +got):\n%s", diff)
	}
}

func TestReadCredentialsRefuses(t *testing.T) {
	t.Parallel()
	good := newCredentials(t, broker.Worker, "w1")
	var text bytes.Buffer
	if err := broker.WriteCredentials(&text, good); err != nil {
		t.Fatal(err)
	}
	seed := good.Seed.Reveal()
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "not the JSON"},
		{"half of it", text.String()[:text.Len()/2], "not the JSON"},
		{"two values", text.String() + text.String(), "more than one"},
		{"foreign field", `[{"x":1}]`, "not the JSON"},
		{"endless", strings.Repeat(" ", 1<<20), "longer than 65536 bytes"},
		{"no address", strings.Replace(text.String(), good.URL, "", 1), "no server address"},
		{"unknown role", strings.Replace(text.String(), "worker", "root", 1), "unknown broker role"},
		{"bad name", strings.Replace(text.String(), `"w1"`, `"w.1"`, 1), "lower-case letters"},
		{"bad seed", strings.Replace(text.String(), seed, seed[:20], 1), "not an nkey seed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := broker.ReadCredentials(strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want an error with %q", err, c.want)
			}
			if strings.Contains(err.Error(), seed[:20]) {
				t.Errorf("the error shows the seed: %v", err)
			}
		})
	}
}

func TestTokenFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	for _, token := range []string{"first", "second"} {
		want := broker.TokenFile{Client: newCredentials(t, broker.Client, "cli"), Token: broker.NewSecret(token)}
		if err := broker.WriteTokenFile(path, want); err != nil {
			t.Fatal(err)
		}
		got, err := broker.ReadTokenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("token file (-want +got):\n%s", diff)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("mode is %#o, want 0600", got)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind %v, %v, want the token file alone", left, err)
	}
}

func TestReadTokenFileRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	err := broker.WriteTokenFile(good, broker.TokenFile{Client: newCredentials(t, broker.Client, "cli")})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, mode os.FileMode, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, want string }{
		{"missing", filepath.Join(dir, "missing"), "no such file"},
		{"group can read", write("group", 0o640, text), "chmod 600"},
		{"others can read", write("others", 0o604, text), "chmod 600"},
		{"others can write", write("write", 0o602, text), "chmod 600"},
		{"directory", dir, "no plain file"},
		{"symbolic link", link, "symbolic link"},
		{"empty", write("empty", 0o600, nil), "not the JSON"},
		{"foreign", write("foreign", 0o600, []byte(`{"a":1}`)), "not the JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := broker.ReadTokenFile(c.path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
				t.Errorf("got %v, want an error with %q and %s", err, c.want, c.path)
			}
		})
	}
}

func TestWriteTokenFileRefusesALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	err := broker.WriteTokenFile(link, broker.TokenFile{Client: newCredentials(t, broker.Client, "cli")})
	if err == nil || !strings.Contains(err.Error(), "no plain file") {
		t.Errorf("got %v, want a refusal", err)
	}
	if _, err := os.Lstat(target); !os.IsNotExist(err) {
		t.Errorf("the link's target exists: %v", err)
	}
}

func TestWriteCredentialsReportsABrokenPipe(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := broker.WriteCredentials(w, newCredentials(t, broker.Client, "cli")); err == nil {
		t.Error("a write nobody can read was reported as done")
	}
}
