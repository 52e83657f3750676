package node_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/node"
)

func order(t *testing.T) node.Order {
	t.Helper()
	id, err := broker.NewIdentity(broker.Worker, "w1")
	if err != nil {
		t.Fatal(err)
	}
	return node.Order{
		Credentials: broker.Credentials{URL: "nats://127.0.0.1:4222", Role: id.Role, Name: id.Name, Seed: id.Seed},
		Endpoints:   map[string]broker.Secret{"OPENAI_API_KEY": broker.NewSecret("sk-secret")},
		Config:      json.RawMessage(`{"name":"w1"}`),
	}
}

func TestOrderIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	want := order(t)
	var wire bytes.Buffer
	if err := node.WriteOrder(&wire, want); err != nil {
		t.Fatal(err)
	}
	// What follows an order is the life of its writer, not part of it.
	wire.WriteString("more")
	got, err := node.ReadOrder(&wire)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Credentials.Seed.Equal(want.Credentials.Seed) || got.Credentials.URL != want.Credentials.URL ||
		got.Endpoints["OPENAI_API_KEY"].Reveal() != "sk-secret" || string(got.Config) != `{"name":"w1"}` {
		t.Errorf("read %v", got)
	}
	if rest, err := io.ReadAll(&wire); err != nil || string(rest) != "more" {
		t.Errorf("left %q, %v", rest, err)
	}
}

func TestOrderDoesNotShow(t *testing.T) {
	t.Parallel()
	o := order(t)
	text := fmt.Sprintf("%v %+v %#v", o, o, o)
	if marshalled, err := json.Marshal(o); err == nil {
		text += string(marshalled)
	}
	for _, secret := range []string{"sk-secret", o.Credentials.Seed.Reveal()} {
		if strings.Contains(text, secret) {
			t.Errorf("a printed order shows %q", secret)
		}
	}
}

func TestBadOrdersAreRefusedWithoutQuotingThem(t *testing.T) {
	t.Parallel()
	var whole bytes.Buffer
	if err := node.WriteOrder(&whole, order(t)); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, wire string
	}{
		{"nothing", ""},
		{"half a length", "\x00\x00"},
		{"cut", whole.String()[:whole.Len()-3]},
		{"too long", "\xff\xff\xff\xff"},
		{"not JSON", "\x00\x00\x00\x09sk-secret"},
		{"no credentials", "\x00\x00\x00\x02{}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := node.ReadOrder(strings.NewReader(tt.wire))
			if err == nil || strings.Contains(err.Error(), "sk-secret") {
				t.Errorf("error %v", err)
			}
		})
	}
}
