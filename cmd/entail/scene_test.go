package main

import (
	"strings"

	"github.com/entail-fleet/entail/agent/model/modeltest"
)

// scenes are conversations that a model has. Each step is chosen by the
// conversation, so that parents and children can be served in any order. Every
// call of every session has the id call_0.
func scenes() map[string]func(modeltest.Request) modeltest.Step {
	return map[string]func(modeltest.Request) modeltest.Step{
		"repair": repair,
		"refuse": func(modeltest.Request) modeltest.Step {
			return modeltest.Status(400, "invalid_request_error", "model_not_found", "no such model")
		},
		"hang": func(modeltest.Request) modeltest.Step { return modeltest.Silent() },
	}
}

// repair is a task on a real repository: look, have the bug described by two
// children, edit, run the tests, report.
func repair(r modeltest.Request) modeltest.Step {
	if child := lastPrompt(r); strings.HasPrefix(child, "describe ") {
		return modeltest.Reply{Text: []string{"it is about ", strings.TrimPrefix(child, "describe ")}}.Step()
	}
	script := []modeltest.Reply{
		call("read", `{"path":"add.sh"}`),
		call("delegate", `{"kind":"spawn","label":"first","prompt":"describe addition"}`),
		call("delegate", `{"kind":"spawn","label":"second","prompt":"describe testing"}`),
		call("edit", `{"path":"add.sh","old":"$1 - $2","new":"$1 + $2"}`),
		call("bash", `{"command":"sh ./test.sh"}`),
		{Text: []string{"the tests ", "pass"}, Usage: modeltest.Usage{Prompt: 11, Completion: 3}},
	}
	return script[min(toolMessages(r), len(script)-1)].Step()
}

func call(name, arguments string) modeltest.Reply {
	return modeltest.Reply{Calls: []modeltest.Call{{ID: "call_0", Name: name, Arguments: arguments}}}
}

// toolMessages counts the results that the model has seen.
func toolMessages(r modeltest.Request) int {
	n := 0
	for _, m := range r.Messages {
		if m.Role == "tool" {
			n++
		}
	}
	return n
}

// lastPrompt is the newest message that a person or a parent wrote.
func lastPrompt(r modeltest.Request) string {
	last := ""
	for _, m := range r.Messages {
		if m.Role == "user" && !strings.HasPrefix(m.Content, "[entail]") {
			last = m.Content
		}
	}
	return last
}
