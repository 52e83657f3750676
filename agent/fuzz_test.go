package agent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/agent"
)

// A model's arguments are taken only if they are one JSON object, and however the same
// ones are written they have one digest, which is what an answer to a question is for.
func FuzzArguments(f *testing.F) {
	for i, s := range []string{
		`{"path":"a"}`, `{"path":"a","content":"x"}`, `{"path":"a","old":"x","new":"y"}`, `{"path":"."}`, `{"pattern":"*"}`, `{"pattern":"("}`,
		`{"command":"ls","timeout":1e308}`, `{"kind":"spawn","label":"l","prompt":"p","tools":{"allow":null}}`,
	} {
		f.Add(uint8(i), s)
		f.Add(uint8(i), s+"{}")
		f.Add(uint8(i), " \n"+strings.ToUpper(s))
	}
	f.Add(uint8(6), `{"command":"a","Command":"b","timeout":-0}`)
	f.Add(uint8(0), "")
	f.Fuzz(func(t *testing.T, which uint8, raw string) {
		name := agent.Tools()[int(which)%len(agent.Tools())]
		err := agent.DecodeArguments(name, raw)
		var object map[string]json.RawMessage
		if err == nil && strings.TrimSpace(raw) != "" && json.Unmarshal([]byte(raw), &object) != nil {
			t.Errorf("%s takes %q, which is no JSON object", name, raw)
		}
		if err == nil && object != nil {
			again, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			if agent.Digest(raw) != agent.Digest(string(again)) {
				t.Errorf("%q and %q have two digests", raw, again)
			}
		}
		_ = agent.Normal("/w", name, raw)
	})
}
