//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"testing"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// BenchmarkCall measures what a call costs beside its own work.
func BenchmarkCall(b *testing.B) {
	r, err := sandbox.New(sandbox.Config{Hidden: []string{b.TempDir()}})
	if err != nil {
		b.Fatal(err)
	}
	ws, err := r.Workspace(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := ws.Close(); err != nil {
			b.Error(err)
		}
	}()
	for name, op := range map[string]sandbox.Op{
		"shell": shell("true"),
		"list":  {List: &sandbox.List{}},
	} {
		for _, mode := range session.SandboxModes() {
			b.Run(name+" "+string(mode), func(b *testing.B) {
				for b.Loop() {
					if res, err := ws.Perform(b.Context(), mode, op, nil); err != nil || res.Failed {
						b.Fatalf("got %+v, %v", res, err)
					}
				}
			})
		}
	}
}
