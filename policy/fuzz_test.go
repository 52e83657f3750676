package policy_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Settings that are read are valid, say the same when they are written and read
// again, and never redefine the two presets that nobody may (SPEC 1.5).
func FuzzParseSettings(f *testing.F) {
	good, err := policy.DefaultSettings().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, edit := range [][2]string{
		{`"version":1`, `"version":2`},
		{`"ask"`, `"yolo"`},
		{`"30s"`, `"9e99h"`},
		{`"depth":3`, `"depth":-1`},
		{`"auto"`, `"custom"`},
		{`"version":1`, `"Version":1,"version":1`},
		{`"read-only"`, `"read-only\u0000"`},
		{`"depth":3`, `"depth":null`},
		{`"approvals":true`, `"approvals":null`},
	} {
		f.Add(bytes.Replace(good, []byte(edit[0]), []byte(edit[1]), 1))
	}
	f.Add(append(bytes.Clone(good), "{}"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := policy.ParseSettings(b)
		if err != nil {
			return
		}
		for _, row := range s.Presets {
			special := row.Name == session.PresetAuto || row.Name == session.PresetFullAccess
			if special && (row.Sandbox != session.DangerFullAccess || row.Approval != session.Never) {
				t.Errorf("%s is %s and %s", row.Name, row.Sandbox, row.Approval)
			}
		}
		for dec := json.NewDecoder(bytes.NewReader(b)); ; {
			token, err := dec.Token()
			if err != nil {
				break
			}
			if token == nil {
				t.Errorf("null was read as a value: %q", b)
			}
		}
		again, err := s.Encode()
		if err != nil {
			t.Fatalf("settings that were read cannot be written: %v", err)
		}
		back, err := policy.ParseSettings(again)
		if diff := cmp.Diff(s, back); err != nil || diff != "" {
			t.Errorf("read again: %v (-first +again):\n%s", err, diff)
		}
	})
}
