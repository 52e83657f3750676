package agent

import (
	"encoding/json"
	"slices"

	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// tool is one tool of the package's own.
type tool struct {
	name        string
	description string
	// effect says that it can change something: files, processes, sessions. One
	// without may run beside others of its kind and again after a crash.
	effect bool
	// relay says that a coordinator carries it out, by the call's id: one that a dead
	// driver left open is carried out again, and comes to the same (SPEC 5.9).
	relay      bool
	properties string // of its arguments' schema, JSON
	required   []string
	// decode reads a call's arguments strictly.
	decode func(raw string) (intent, error)
}

const (
	toolRead  = "read"
	toolWrite = "write"
	toolEdit  = "edit"
	toolList  = "list"
	toolGlob  = "glob"
	toolGrep  = "grep"
	toolBash  = "bash"
)

// escalation is what every tool with an effect of its own may ask for besides
// (SPEC 5.6).
const escalation = `,
	"sandbox_permissions": {"type": "string", "enum": ["workspace-write", "danger-full-access"],
		"description": "A sandbox mode wider than the current one, for this call only. Needs a justification."},
	"justification": {"type": "string", "description": "Why this one call needs the wider mode."}`

// tools lists the tools in the order they are offered in.
func tools() []tool {
	return append(fileTools(),
		tool{
			name: toolBash, effect: true, required: []string{"command"}, decode: decodeBash,
			description: "Run a shell command in the workspace and return its output.",
			properties: `"command": {"type": "string"},
	"timeout": {"type": "number", "description": "Seconds after which the command is ended."}` + escalation,
		},
		tool{
			name: session.ToolDelegate, effect: true, required: []string{"kind", "label", "prompt"}, decode: decodeDelegate,
			description: "Start a child session that works on a prompt. The call returns the child's closing message, " +
				"or at once with background.",
			properties: `"kind": {"type": "string", "enum": ["spawn", "fork"], "description": "spawn starts afresh; fork knows what you know up to your last finished turn."},
	"mode": {"type": "string", "enum": ["one-shot", "continuable"]},
	"label": {"type": "string", "description": "A short name for the child."},
	"prompt": {"type": "string"},
	"background": {"type": "boolean", "description": "Go on at once; a notice comes when the child is done."},
	"sandbox": {"type": "string", "enum": ["read-only", "workspace-write", "danger-full-access"], "description": "A narrower sandbox mode for the child."},
	"tools": {"type": "object", "additionalProperties": false, "description": "Limits the child's tools.",
		"properties": {"allow": {"type": "array", "items": {"type": "string"}}, "deny": {"type": "array", "items": {"type": "string"}}}},
	"persona": {"type": "string", "description": "Who the child is to be."}` + escalation,
		},
		tool{
			name: client.ToolSend, relay: true, required: []string{"to", "message"}, decode: decodeSend,
			description: "Send a message to a continuable child that you started. It is that session's next turn; a notice comes when it is idle again.",
			properties:  `"to": {"type": "string", "description": "The child's session id, or its label."}, "message": {"type": "string"}`,
		},
		tool{
			name: client.ToolReport, relay: true, required: []string{"message"}, decode: decodeReport,
			description: "Report to the session that started you, while you go on. Only a continuable child can.",
			properties:  `"message": {"type": "string"}`,
		},
		tool{
			name: client.ToolInterrupt, relay: true, required: []string{"session"}, decode: decodeStop,
			description: "Stop what a session below you is doing. It keeps its messages and can be sent to again.",
			properties:  `"session": {"type": "string", "description": "Its session id, or your child's label."}, "reason": {"type": "string"}`,
		},
		tool{
			name: client.ToolCancel, relay: true, required: []string{"session"}, decode: decodeStop,
			description: "End a session below you for good, with all below it. This gives back the place that a continuable child holds.",
			properties:  `"session": {"type": "string", "description": "Its session id, or your child's label."}, "reason": {"type": "string"}`,
		})
}

func fileTools() []tool {
	return []tool{
		{
			name: toolRead, required: []string{"path"}, decode: decodeRead,
			description: "Read lines of a text file in the workspace.",
			properties: `"path": {"type": "string"},
	"offset": {"type": "integer", "description": "The first line wanted, from 1."},
	"limit": {"type": "integer", "description": "How many lines are wanted at most."}`,
		},
		{
			name: toolWrite, effect: true, required: []string{"path", "content"}, decode: decodeWrite,
			description: "Create a file in the workspace or replace its content.",
			properties:  `"path": {"type": "string"}, "content": {"type": "string"}` + escalation,
		},
		{
			name: toolEdit, effect: true, required: []string{"path", "old", "new"}, decode: decodeEdit,
			description: "Replace text in a file: its one occurrence, or with all each one.",
			properties: `"path": {"type": "string"}, "old": {"type": "string"}, "new": {"type": "string"},
	"all": {"type": "boolean"}` + escalation,
		},
		{
			name: toolList, required: []string{"path"}, decode: decodeList,
			description: "List the entries of a directory in the workspace.",
			properties:  `"path": {"type": "string"}`,
		},
		{
			name: toolGlob, required: []string{"pattern"}, decode: decodeGlob,
			description: "Name the files in the workspace that match a pattern; ** stands for any number of directories.",
			properties:  `"pattern": {"type": "string"}`,
		},
		{
			name: toolGrep, required: []string{"pattern"}, decode: decodeGrep,
			description: "Show the lines that match an RE2 pattern in the files of the workspace, or under a path.",
			properties:  `"pattern": {"type": "string"}, "path": {"type": "string"}`,
		},
	}
}

// Tools lists the names of all tools, as tool filters may speak of them.
func Tools() []string {
	all := tools()
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.name
	}
	return names
}

// toolOf finds a tool by the name that a model gave.
func toolOf(name string) (tool, bool) {
	all := tools()
	i := slices.IndexFunc(all, func(t tool) bool { return t.name == name })
	if i < 0 {
		return tool{}, false
	}
	return all[i], true
}

// offered lists the tools that a session's filter leaves.
func offered(f *session.ToolFilter) []model.Tool {
	var out []model.Tool
	for _, t := range tools() {
		if policy.Filtered(f, t.name) {
			continue
		}
		out = append(out, model.Tool{Name: t.name, Description: t.description, Parameters: t.schema()})
	}
	return out
}

// schema is the JSON schema of the tool's arguments.
func (t tool) schema() json.RawMessage {
	required, err := json.Marshal(t.required)
	if err != nil {
		panic("unreachable: a list of names is JSON: " + err.Error())
	}
	return json.RawMessage(`{"type": "object", "additionalProperties": false, "required": ` + string(required) +
		`, "properties": {` + t.properties + `}}`)
}
