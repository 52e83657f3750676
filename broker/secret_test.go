package broker_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/broker"
)

func TestSecretDoesNotShow(t *testing.T) {
	t.Parallel()
	id, err := broker.NewIdentity(broker.Worker, "w1")
	if err != nil {
		t.Fatal(err)
	}
	creds := broker.Credentials{URL: "nats://127.0.0.1:1", Role: id.Role, Name: id.Name, Seed: id.Seed}
	// fmt cannot call the methods of an unexported field.
	nested := struct{ id, creds any }{struct{ id broker.Identity }{id}, struct{ c *broker.Credentials }{&creds}}
	for _, c := range []struct {
		name  string
		value any
	}{
		{"seed", id.Seed},
		{"pointer to seed", &id.Seed},
		{"identity", id},
		{"pointer to identity", &id},
		{"credentials", creds},
		{"list", []broker.Identity{id}},
		{"map", map[string]broker.Credentials{"a": creds}},
		{"unexported fields", nested},
		{"token file", broker.TokenFile{Client: creds, Token: id.Seed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for way, shown := range shownBy(t, c.value) {
				if strings.Contains(shown, id.Seed.Reveal()) || strings.Contains(shown, fmt.Sprintf("%x", id.Seed.Reveal())) {
					t.Errorf("%s shows the seed: %s", way, shown)
				}
			}
		})
	}
}

// shownBy returns value as each way of printing shows it.
func shownBy(t *testing.T, value any) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		out[verb] = fmt.Sprintf(verb, value)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	out["json"] = string(text)
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"slog text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"slog json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var b bytes.Buffer
		slog.New(handler(&b)).Info("connect", slog.Any("with", value))
		out[name] = b.String()
	}
	return out
}

func TestSecretSaysThatItIsHidden(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprint(broker.NewSecret("x")); got != "[hidden]" {
		t.Errorf("printed %q, want [hidden]", got)
	}
	if got := (broker.Secret{}).Reveal(); got != "" {
		t.Errorf("the zero secret reveals %q", got)
	}
}

func TestNewIdentityRefusesBadNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", ".", "a.b", "*", ">", "a b", "A", "ä", "-a", "_a", "a\n", "a\x00", strings.Repeat("a", 65),
	} {
		if _, err := broker.NewIdentity(broker.Worker, name); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
	if _, err := broker.NewIdentity("root", "a"); err == nil {
		t.Error("role root was accepted")
	}
	if _, err := broker.NewIdentity(broker.Worker, strings.Repeat("a", 64)); err != nil {
		t.Errorf("a name of 64 bytes: %v", err)
	}
}

func TestIdentitiesDiffer(t *testing.T) {
	t.Parallel()
	one, err := broker.NewIdentity(broker.Reader, "r")
	if err != nil {
		t.Fatal(err)
	}
	two, err := broker.NewIdentity(broker.Reader, "r")
	if err != nil {
		t.Fatal(err)
	}
	if cmp.Equal(one, two) {
		t.Error("two identities have one key")
	}
	if !cmp.Equal(one, one) {
		t.Error("an identity differs from itself")
	}
}
