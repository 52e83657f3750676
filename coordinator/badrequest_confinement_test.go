package coordinator_test

import (
	"encoding/json"
	"testing"

	"github.com/entail-fleet/entail/client"
)

// confinements sets each member of the settings' confinement section to what it
// does not take.
func (w *badWorld) confinements(t *testing.T) {
	t.Helper()
	i := 0
	for _, m := range w.methods {
		if m.Method == client.MethodConfigSet {
			break
		}
		i++
	}
	for path, tt := range map[string]struct {
		values []any
		says   string // of values of the right type
	}{
		"confinement":                         {[]any{nil, "none", 7, []any{}, map[string]any{}, map[string]any{"require": "uid"}}, ""},
		"confinement.require":                 {[]any{"none", "", "vm", "Landlock", "uid "}, `is not one of [namespaces uid landlock]`},
		"confinement.network":                 {[]any{nil, "deny", map[string]any{}, map[string]any{"read-only": "deny"}, []any{}}, ""},
		"confinement.network.read-only":       {[]any{"", "some", "DENY", "127.0.0.1"}, `each is one of [deny loopback allow]`},
		"confinement.network.workspace-write": {[]any{"", "none", "deny\n"}, `each is one of [deny loopback allow]`},
		"confinement.uids.first":              {[]any{0, 999, 65534, 4_294_967_295}, `uids: `},
		"confinement.uids.count":              {[]any{0, 2_394_967_296, 4_294_967_295}, `uids: `},
		"confinement.uids":                    {[]any{map[string]any{"first": 1000}, map[string]any{"first": 1000, "count": 100_000}, 1000, "1000-2000"}, ""},
		"confinement.fullAccessAs":            {[]any{"", "root", "Tree", "0"}, `is neither "tree" nor "worker"`},
		"confinement.limits.time":             {[]any{"0s", "-1s"}, `is not above 0`},
		"confinement.limits.cpu":              {[]any{"-1s", "999ms"}, `neither 0, which is no limit, nor at least 1s`},
		"confinement.limits.fileSize":         {[]any{-1, 1, 1<<20 - 1}, `nor at least 1048576`},
		"confinement.limits.openFiles":        {[]any{-1, 1, 63}, `nor at least 64`},
		"confinement.limits.output":           {[]any{-1, 1, 64<<10 - 1}, `nor at least 65536`},
		"confinement.limits.processes":        {[]any{-1, 1, 15}, `nor at least 16`},
	} {
		for _, v := range tt.values {
			body := encoded(t, client.ConfigSetRequest{Head: head, Path: path, Value: json.RawMessage(encoded(t, v))})
			w.refused(t, w.methods[i], path+" is "+string(encoded(t, v)), body, client.CodeInvalid, `set "`+path+`" to`, "`entail config get`", tt.says)
		}
		for _, wrong := range []any{nil, true, []any{}, 1.5, "1.5", json.Number("1e40"), long()} {
			body := encoded(t, client.ConfigSetRequest{Head: head, Path: path, Value: json.RawMessage(encoded(t, wrong))})
			w.refused(t, w.methods[i], path+" is of another type", body, client.CodeInvalid)
		}
		for _, below := range []string{path + ".x", path + ".", path + "..", path + "\x00"} {
			body := encoded(t, client.ConfigSetRequest{Head: head, Path: below, Value: json.RawMessage("1")})
			w.refused(t, w.methods[i], below, body, client.CodeInvalid, "unknown setting", "`entail config get`")
		}
	}
}
