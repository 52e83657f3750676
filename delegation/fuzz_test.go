package delegation_test

import (
	"encoding/json"
	"testing"

	"github.com/entail-fleet/entail/delegation"
)

// A delegation request that passes has a digest; the same request, however it is
// written, has the same one, and one that asks for something else another (SPEC 1.10).
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"kind":"spawn","mode":"one-shot","label":"l","prompt":"p"}`,
		`{"prompt":"p","label":"l","mode":"one-shot","kind":"spawn"}`,
		`{"kind":"fork","mode":"continuable","label":"\ud800","prompt":"\u0000é","sandbox":"read-only","tools":{"allow":[]},"persona":"x"}`,
		`{"kind":"fork","mode":"continuable","label":"l","prompt":" ","tools":{"allow":null,"deny":["bash","bash"]}}`,
		`{"kind":"spawn","mode":"one-shot","label":"l\n","prompt":"p"}`, `{}`, `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var r delegation.Request
		if json.Unmarshal(body, &r) != nil || r.Check() != nil {
			return
		}
		want, err := delegation.Digest(r)
		if err != nil || len(want) != 64 {
			t.Fatalf("%+v passes and has the digest %q, %v", r, want, err)
		}
		var members map[string]json.RawMessage // written again in the order of the keys
		once, err := json.Marshal(r)
		if err == nil {
			err = json.Unmarshal(once, &members)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := delegation.Digest(members); err != nil || got != want {
			t.Errorf("%s has the digest %q and, in another order, %q, %v", once, want, got, err)
		}
		r.Prompt += "."
		if got, err := delegation.Digest(r); err != nil || got == want {
			t.Errorf("another prompt has the same digest, %v", err)
		}
	})
}
