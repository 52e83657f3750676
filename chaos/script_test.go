package chaos_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/entail-fleet/entail/agent/model"
)

// maxDepth is the depth of every tree: the deployment's cap.
const maxDepth = 3

// item and call are a script's, see package model.
type (
	item struct {
		Text  string `json:"text,omitempty"`
		Calls []call `json:"calls,omitempty"`
	}
	call struct {
		ID   string         `json:"id"`
		Tool string         `json:"tool"`
		Args map[string]any `json:"args"`
	}
)

// script is a tree in the making.
type script struct {
	r        *rand.Rand
	sessions map[string][]item
}

// newScript writes the script of one tree: a root that answers its first turn in
// words, and in its second one asks for more than it has and then starts children, which start children in turn, down
// to the cap. Which are spawns and which forks, one-shot or continuable, waited
// for or not, and in which order a session works and delegates, is left to the
// seed. It is JSON, which YAML includes.
func newScript(t *testing.T, r *rand.Rand) string {
	t.Helper()
	s := script{r: r, sessions: map[string][]item{}}
	s.sessions["root"] = append([]item{{Text: "ready"}, {Calls: []call{{ID: "asked-mark", Tool: "bash", Args: map[string]any{
		"command": "sleep 0.2; echo asked >> marks", "sandbox_permissions": "danger-full-access", "justification": "to show that it may",
	}}}}}, s.work("root", 0)...)
	text, err := json.Marshal(map[string]any{"sessions": s.sessions})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := model.ParseScript("tree", text); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return string(text)
}

// work is what the session of a label does in the turn in which it delegates. A
// call that takes a while stands before or behind the delegating calls, or
// nowhere, so that they are open for a while, or for as short as it goes.
func (s *script) work(label string, depth int) []item {
	slow := call{ID: label + "-mark", Tool: "bash", Args: map[string]any{
		"command": fmt.Sprintf("sleep 0.4; echo %s >> marks", label),
	}}
	if depth == maxDepth {
		return []item{{Calls: []call{slow}}, {Text: label + " done"}}
	}
	children := 1
	if depth == 0 {
		children = 2
	}
	var calls []call
	for i := range children {
		calls = append(calls, s.delegate(fmt.Sprintf("%s-%d", label, i), depth+1))
	}
	switch s.r.IntN(5) {
	case 0, 1:
		calls = append([]call{slow}, calls...)
	case 2, 3:
		calls = append(calls, slow)
	}
	return []item{{Calls: calls}, {Text: label + " done"}}
}

// delegate is one delegating call, and what its child does.
func (s *script) delegate(label string, depth int) call {
	s.sessions[label] = s.work(label, depth)
	pick := func(a, b string) string { return []string{a, b}[s.r.IntN(2)] }
	return call{ID: label, Tool: "delegate", Args: map[string]any{
		"kind": pick("spawn", "fork"), "mode": pick("one-shot", "continuable"), "background": s.r.IntN(2) == 0,
		"label": label, "prompt": "work as " + label,
	}}
}
