//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"testing"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

func TestOneFieldIsSet(t *testing.T) {
	t.Parallel()
	ws := openWorkspace(t, sandbox.Config{}, t.TempDir())
	for _, op := range []sandbox.Op{{}, {List: &sandbox.List{}, Read: &sandbox.Read{Path: "f"}}} {
		if res, err := ws.Perform(t.Context(), session.ReadOnly, op, nil); err == nil {
			t.Errorf("%+v: got %+v", op, res)
		}
	}
}
