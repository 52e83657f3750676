package agent

import (
	"strings"
	"testing"
)

// Arguments are read in one way only: what the bound on repeats looks at is what
// is run (SPEC 5.8).
func TestSPEC5_8_ArgumentsHaveOneForm(t *testing.T) {
	t.Parallel()
	good := `{"command":"ls","timeout":3,"sandbox_permissions":"workspace-write","justification":"to write"}`
	in, err := decodeBash(good)
	if err != nil || in.op.Shell.Command != "ls" || in.escalate.Mode != "workspace-write" || in.escalate.Justification != "to write" {
		t.Fatalf("decodeBash(%s) = %+v, %v", good, in, err)
	}
	for what, bad := range map[string]struct{ raw, says string }{
		"a key in another case":  {`{"command":"ls","Timeout":3}`, `there is no field "Timeout"`},
		"a key twice":            {`{"command":"ls","command":"rm f"}`, `field "command" is given twice`},
		"an unknown key":         {`{"command":"ls","cwd":"/"}`, `there is no field "cwd"`},
		"something behind it":    {`{"command":"ls"} {}`, "not one JSON value"},
		"another type":           {`{"command":["ls"]}`, `field "command" takes no JSON array`},
		"bytes that are no text": {"{\"command\":\"ls\xff\"}", "not one JSON value"},
	} {
		if _, err := decodeBash(bad.raw); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s: %q: %v, want it refused with %q", what, bad.raw, err, bad.says)
		}
	}
	if normal("/w", "bash", `{"command":"ls","timeout":3}`) != normal("/w", "bash", `{"timeout":4,"command":" 'ls'"}`) {
		t.Error("a repeat with another timeout is another call")
	}
}
