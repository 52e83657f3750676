package agent

import "testing"

// Arguments are read in one way only: what the bound on repeats looks at is what
// is run (SPEC 5.8).
func TestSPEC5_8_ArgumentsHaveOneForm(t *testing.T) {
	t.Parallel()
	good := `{"command":"ls","timeout":3,"sandbox_permissions":"workspace-write","justification":"to write"}`
	in, err := decodeBash(good)
	if err != nil || in.op.Shell.Command != "ls" || in.escalate.Mode != "workspace-write" || in.escalate.Justification != "to write" {
		t.Fatalf("decodeBash(%s) = %+v, %v", good, in, err)
	}
	for what, raw := range map[string]string{
		"a key in another case":  `{"command":"ls","Timeout":3}`,
		"a key twice":            `{"command":"ls","command":"rm f"}`,
		"an unknown key":         `{"command":"ls","cwd":"/"}`,
		"something behind it":    `{"command":"ls"} {}`,
		"another type":           `{"command":["ls"]}`,
		"bytes that are no text": "{\"command\":\"ls\xff\"}",
	} {
		if _, err := decodeBash(raw); err == nil {
			t.Errorf("%s: %q was taken", what, raw)
		}
	}
	if normal("/w", "bash", `{"command":"ls","timeout":3}`) != normal("/w", "bash", `{"timeout":4,"command":" 'ls'"}`) {
		t.Error("a repeat with another timeout is another call")
	}
}
