//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
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

// BenchmarkRead reads 4 KiB in each home of file operations, and from disk.
func BenchmarkRead(b *testing.B) {
	root := b.TempDir()
	content := []byte(strings.Repeat("a line of sixty-four bytes, which is what a line may well have\n", 64))
	if err := os.WriteFile(filepath.Join(root, "f"), content, 0o600); err != nil {
		b.Fatal(err)
	}
	for home, cfg := range homes() {
		r, err := sandbox.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		ws, err := r.Workspace(root, "")
		if err != nil {
			b.Fatal(err)
		}
		b.Run(home, func(b *testing.B) {
			op := sandbox.Op{Read: &sandbox.Read{Path: "f"}}
			for b.Loop() {
				if res, err := ws.Perform(b.Context(), session.ReadOnly, op, nil); err != nil || len(res.Output) != len(content) {
					b.Fatalf("got %+v, %v", res, err)
				}
			}
		})
		if err := ws.Close(); err != nil {
			b.Error(err)
		}
	}
}
