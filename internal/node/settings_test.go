package node_test

import (
	"testing"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

func TestSettle(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	provisioner, err := stream.New(s.Conn(t, broker.Provisioner, "provisioner"), stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := provisioner.Provision(t.Context(), stream.ProvisionConfig{}); err != nil {
		t.Fatal(err)
	}
	log, err := stream.New(s.Conn(t, broker.Coordinator, "coordinator"), stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	by := session.Party{Kind: session.Program, ID: "test"}
	settle := func(w node.Wishes) (policy.Settings, uint64) {
		t.Helper()
		got, err := node.Settle(t.Context(), log, policy.DefaultSettings(), w, by)
		if err != nil {
			t.Fatal(err)
		}
		_, revision, err := log.Settings().Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got, revision
	}
	first, one := settle(node.Wishes{})
	if first.Defaults != policy.DefaultSettings().Defaults || one == 0 {
		t.Errorf("a new deployment has %+v at revision %d", first, one)
	}
	wished, two := settle(node.Wishes{DefaultSandbox: session.WorkspaceWrite, Lease: time.Second})
	if wished.Defaults.Sandbox != session.WorkspaceWrite || time.Duration(wished.Lease) != time.Second || two == one {
		t.Errorf("wishes came to %+v at revision %d", wished, two)
	}
	// What nobody wishes for stays, and costs no revision.
	kept, three := settle(node.Wishes{})
	if kept.Defaults != wished.Defaults || kept.Lease != wished.Lease || three != two {
		t.Errorf("no wishes came to %+v at revision %d, it was %d", kept, three, two)
	}
}

func TestWishesAreChecked(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		w    node.Wishes
		ok   bool
	}{
		{"none", node.Wishes{}, true},
		{"a mode", node.Wishes{DefaultSandbox: session.WorkspaceWrite}, true},
		{"an unknown mode", node.Wishes{DefaultSandbox: "wide"}, false},
		{"an unknown reviewer", node.Wishes{Reviewer: "me"}, false},
		{"a short lease", node.Wishes{Lease: time.Millisecond}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := tt.w.Validate(); (err == nil) != tt.ok {
				t.Errorf("Validate() = %v, want ok %t", err, tt.ok)
			}
		})
	}
}
