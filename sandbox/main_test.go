//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if code, ok := subprogram(os.Args); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}
