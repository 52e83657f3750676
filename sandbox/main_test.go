//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/entail-fleet/entail/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	if code, ok := subprogram(os.Args); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}
