package model_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/agent/model"
)

const handover = `sessions:
  root:
    - text: handing this over
      calls:
        - {id: c1, tool: delegate, args: {kind: spawn, label: child, prompt: "write blocked.txt"}}
    - text: finished
  child:
    - calls: [{id: w1, tool: write, args: {path: blocked.txt, content: escaped}}]
    - text: child done
`

func parse(t *testing.T, text string) *model.Script {
	t.Helper()
	s, err := model.ParseScript("s.yaml", []byte(text))
	if err != nil {
		t.Fatalf("ParseScript: %v", err)
	}
	return s
}

func TestScriptAnswersByLabelAndPosition(t *testing.T) {
	t.Parallel()
	client := parse(t, handover).Client()
	delegate := model.Call{ID: "c1", Name: "delegate", Arguments: `{"kind":"spawn","label":"child","prompt":"write blocked.txt"}`}
	write := model.Call{ID: "w1", Name: "write", Arguments: `{"path":"blocked.txt","content":"escaped"}`}
	tests := []struct {
		name     string
		label    string
		position int
		want     model.Response
	}{
		{"root first", "root", 0, model.Response{Text: "handing this over", Calls: []model.Call{delegate}, Finish: "tool_calls", Model: "scripted"}},
		{"root second", "root", 1, model.Response{Text: "finished", Finish: "stop", Model: "scripted"}},
		{"root used up", "root", 2, model.Response{Text: "done", Finish: "stop", Model: "scripted"}},
		{"child first", "child", 0, model.Response{Calls: []model.Call{write}, Finish: "tool_calls", Model: "scripted"}},
		{"child second", "child", 1, model.Response{Text: "child done", Finish: "stop", Model: "scripted"}},
		{"label without a list", "other", 0, model.Response{Text: "done", Finish: "stop", Model: "scripted"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var streamed strings.Builder
			got, err := client.Step(t.Context(), model.Request{Label: tt.label, Position: tt.position},
				func(s string) { streamed.WriteString(s) })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
			if streamed.String() != tt.want.Text {
				t.Errorf("streamed %q, want %q", streamed.String(), tt.want.Text)
			}
		})
	}
}

func TestScriptStepRefusesNegativePosition(t *testing.T) {
	t.Parallel()
	if _, err := parse(t, handover).Client().Step(t.Context(), model.Request{Label: "root", Position: -1}, nil); err == nil {
		t.Error("Step at position -1 succeeded, want an error")
	}
}

func TestScriptKeepsItsText(t *testing.T) {
	t.Parallel()
	data := []byte(handover)
	s, err := model.ParseScript("s.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	clear(s.Bytes())
	if got := string(s.Bytes()); got != handover {
		t.Errorf("Bytes() = %q after the caller's slices changed, want the text", got)
	}
	sum := sha256.Sum256([]byte(handover))
	if got, want := s.SHA256(), hex.EncodeToString(sum[:]); got != want {
		t.Errorf("SHA256() = %s, want %s", got, want)
	}
	if diff := cmp.Diff([]string{"root", "child"}, s.Labels()); diff != "" {
		t.Errorf("Labels() (-want +got):\n%s", diff)
	}
}

func TestScriptArgumentsAreCompactJSON(t *testing.T) {
	t.Parallel()
	const text = `sessions:
  root:
    - calls:
        - id: a
          tool: bash
          args:
            z: 1
            a: [true, null, 1.5, "5", <b>&"]
            m: {k: 2001-01-02, 7: seven, big: 9223372036854775807}
        - {id: b, tool: list}
`
	got, err := parse(t, strings.Replace(text, `<b>&"`, `'<b>&"'`, 1)).Client().
		Step(t.Context(), model.Request{Label: "root"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []model.Call{
		{ID: "a", Name: "bash", Arguments: `{"z":1,"a":[true,null,1.5,"5","<b>&\""],"m":{"k":"2001-01-02","7":"seven","big":9223372036854775807}}`},
		{ID: "b", Name: "list", Arguments: `{}`},
	}
	if diff := cmp.Diff(want, got.Calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestParseScriptRefuses(t *testing.T) {
	t.Parallel()
	const delegate = "sessions:\n  root:\n    - calls: [{id: a, tool: delegate, args: {label: kid}}]\n"
	tests := []struct{ name, text, want string }{
		{"empty", "", "s.yaml: the script is empty"},
		{"only a comment", "# nothing\n", "s.yaml: the script is empty"},
		{"not a map", "- a\n", "s.yaml:1:1: the script is a list, want a map"},
		{"no sessions", "{}\n", "s.yaml:1:1: the script has no key sessions"},
		{"unknown top key", "sessions: {}\nmore: 1\n", `s.yaml:2:1: unknown key "more"`},
		{"sessions is a list", "sessions: []\n", "s.yaml:1:11: sessions is a list, want a map"},
		{"list is empty", "sessions:\n  root:\n", `s.yaml:2:8: the list of "root" is empty, want a list`},
		{"empty label", "sessions:\n  '': []\n", "s.yaml:2:3: a label is empty"},
		{"response is a string", "sessions:\n  root: [hello]\n", "s.yaml:2:10: a response is a string, want a map"},
		{"unknown key of a response", "sessions:\n  root:\n    - txt: a\n", `s.yaml:3:7: unknown key "txt" of a response`},
		{"unknown key of a call", "sessions:\n  root:\n    - calls: [{id: a, name: read}]\n", `s.yaml:3:23: unknown key "name" of a call`},
		{"unknown tool", "sessions:\n  root:\n    - calls: [{id: a, tool: rm, args: {}}]\n", `s.yaml:3:29: unknown tool "rm"`},
		{"no tool", "sessions:\n  root:\n    - calls: [{id: a}]\n", "s.yaml:3:15: a call names no tool"},
		{"args is a list", "sessions:\n  root:\n    - calls: [{tool: read, args: [1]}]\n", "s.yaml:3:34: args is a list, want a map"},
		{"text is a number", "sessions:\n  root:\n    - text: 5\n", `s.yaml:3:13: text is the value "5", want a string`},
		{"label nobody gives", "sessions:\n  root: []\n  kid: []\n", `s.yaml:3:3: no delegate call of this script gives the label "kid"`},
		{"label given twice", delegate + "    - calls: [{id: b, tool: delegate, args: {label: kid}}]\n", `s.yaml:4:53: two delegate calls give the label "kid"`},
		{"label root given", strings.Replace(delegate, "kid", "root", 1), `s.yaml:3:53: the label "root" is the root's own`},
		{"relative wait_for", "sessions:\n  root:\n    - wait_for: a/b\n", `s.yaml:3:17: wait_for is "a/b", want an absolute path`},
		{"key twice", "sessions:\n  root:\n    - text: a\n      text: b\n", `s.yaml:4:7: a response has the key "text" twice`},
		{"label twice", "sessions:\n  root: []\n  root: []\n", `s.yaml:3:3: sessions has the key "root" twice`},
		{"argument twice", "sessions:\n  root:\n    - calls: [{tool: read, args: {path: a, path: b}}]\n", `s.yaml:3:44: args has the key "path" twice`},
		{"alias", "sessions:\n  root: &a []\n  kid: *a\n", `s.yaml:3:8: the list of "kid" is an alias, want a list`},
		{"merge key", "sessions:\n  root:\n    - <<: {text: a}\n", "s.yaml:3:7: a key of a response"},
		{"infinite argument", "sessions:\n  root:\n    - calls: [{tool: read, args: {offset: .inf}}]\n", `s.yaml:3:43: ".inf" cannot be written as JSON`},
		{"binary argument", "sessions:\n  root:\n    - calls: [{tool: read, args: {path: !!binary YQ==}}]\n", "s.yaml:3:41: a value tagged !!binary"},
		{"two documents", "sessions: {}\n---\nsessions: {}\n", "s.yaml:2:1: a second document"},
		{"not YAML", "sessions:\n  root: [\n", "s.yaml:2: not YAML"},
		{"too big", "#" + strings.Repeat("x", model.MaxScriptBytes), "s.yaml: the script has 262145 bytes, at most 262144 are allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := model.ParseScript("s.yaml", []byte(tt.text))
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Fatalf("ParseScript: %v, want %s…", err, tt.want)
			}
			if _, ok := errors.AsType[*model.ScriptError](err); !ok {
				t.Errorf("ParseScript: %T, want *ScriptError", err)
			}
		})
	}
}

func TestParseScriptAccepts(t *testing.T) {
	t.Parallel()
	child := "sessions:\n  kid: [{text: hi}]\n  root:\n    - calls: [{id: a, tool: delegate, args: {label: kid}}]\n"
	tests := []struct {
		name, text string
		tools      []string
	}{
		{"greatest size", "sessions: {}\n#" + strings.Repeat("x", model.MaxScriptBytes-len("sessions: {}\n#")), nil},
		{"child listed first", child, nil},
		{"delegated label without a list", strings.Replace(child, "kid: [{text: hi}]", "# none", 1), nil},
		{"delegation without a label", strings.Replace(strings.Replace(child, "label: kid", "kind: spawn", 1), "kid: [{text: hi}]", "# none", 1), nil},
		{"response that says nothing", "sessions:\n  root: [{text: ''}]\n", nil},
		{"tools of the caller", "sessions:\n  root: [{calls: [{tool: fetch}]}]\n", []string{"fetch"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := model.ParseScript("s.yaml", []byte(tt.text), tt.tools...); err != nil {
				t.Errorf("ParseScript: %v", err)
			}
		})
	}
}

func TestWaitForHoldsTheResponse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "go")
	client := parse(t, "sessions:\n  root:\n    - {text: now, wait_for: "+path+"}\n").Client()
	type answer struct {
		res model.Response
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		res, err := client.Step(t.Context(), model.Request{Label: "root"}, nil)
		answers <- answer{res, err}
	}()
	select {
	case a := <-answers:
		t.Fatalf("answered %+v before the file was there", a)
	case <-time.After(100 * time.Millisecond):
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-answers:
		if a.err != nil || a.res.Text != "now" {
			t.Errorf("answered %+v, want the text now", a)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no answer after the file was there")
	}
}

func TestWaitForEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "never")
	client := parse(t, "sessions:\n  root:\n    - {text: now, wait_for: "+path+"}\n").Client()
	gone := errors.New("the worker stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := client.Step(ctx, model.Request{Label: "root"}, nil); !errors.Is(err, gone) {
		t.Errorf("Step: %v, want %v", err, gone)
	}
}

func FuzzParseScript(f *testing.F) {
	f.Add([]byte(handover))
	f.Add([]byte("sessions: &a {root: [*a]}"))
	f.Add([]byte("sessions: {root: [{calls: [{tool: delegate, args: {label: !!int x, ? [a] : b}}]}]}"))
	f.Add([]byte("sessions: {root: [{wait_for: /a, text: |\n  a\n}]}\n---\n..."))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := model.ParseScript("f", data)
		if err != nil {
			return
		}
		for _, label := range s.Labels() {
			// A held response would wait for its file for ever.
			if bytes.Contains(data, []byte("wait")) || bytes.Contains(data, []byte(`\`)) {
				break
			}
			res, err := s.Client().Step(t.Context(), model.Request{Label: label}, nil)
			if err != nil {
				t.Fatalf("step of %q: %v", label, err)
			}
			for _, c := range res.Calls {
				if !json.Valid([]byte(c.Arguments)) {
					t.Errorf("arguments %q are not JSON", c.Arguments)
				}
			}
		}
		again, err := model.ParseScript("f", s.Bytes())
		if err != nil || again.SHA256() != s.SHA256() {
			t.Errorf("parsing %q again: %v", data, err)
		}
	})
}
