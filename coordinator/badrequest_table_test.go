package coordinator_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// refusal is a value that a field does not take, the code that it is refused
// with, and words of the message: what is wrong, and the way out. "a|b" stands
// for one of the two.
type refusal struct {
	value any
	code  client.Code
	says  []string
}

// invalid is a value that makes no sense, whatever the logs say.
func invalid(value any, says ...string) refusal {
	return refusal{value, client.CodeInvalid, says}
}

const (
	unknownID   = "0001m8pgrjs8m9g9qeynnyk2zje7"
	unknownFork = unknownID + "-01arz3ndektsv4rrffq69g5fav"
	// The deployment has one partition.
	foreignID = "ff01m8pgrjs8m9g9qeynnyk2zje7"
)

// long is more than any name has. No error may give it all back.
func long() string { return strings.Repeat("x", 64<<10) }

// quoted is how a message begins to quote a text.
func quoted(s string) string {
	return strings.TrimSuffix(strconv.Quote(s[:min(len(s), 60)]), `"`)
}

// notIDs are texts that are no session's id.
func notIDs() []refusal {
	var out []refusal
	for _, id := range []string{
		"abc", "a.b", "*", ">", "a b", " " + unknownID, unknownID + "\n", "a\tb\x01", strings.Repeat("a", 300), strings.ToUpper(unknownID),
		unknownID + "-", unknownID + ".>", unknownID + "-" + unknownID, long(),
	} {
		out = append(out, invalid(id, quoted(id), "not a session id", "two hex digits and a ULID|26 letters"))
	}
	return out
}

// ids are what a field does not take that must name a session.
func (w *badWorld) ids() []refusal {
	out := append(notIDs(), invalid("", `""`, "not a session id"))
	return append(out, w.unknownIDs()...)
}

// unknownIDs are well-formed and no session's.
func (w *badWorld) unknownIDs() []refusal {
	var out []refusal
	for _, id := range []string{unknownID, unknownFork, foreignID, string(w.idle) + unknownFork[len(unknownID):]} {
		out = append(out, refusal{id, client.CodeNotFound, []string{id, "no such session", "`entail session ls`"}})
	}
	return out
}

// newIDs are what a field does not take that names a session to be made.
func newIDs(more ...refusal) []refusal {
	return append(append(notIDs(), refusal{foreignID, client.CodeNotFound, []string{foreignID, "partition"}}), more...)
}

// names are texts that are no name.
func names() []refusal {
	const wayOut = "give 1 to 256 bytes without control characters"
	var out []refusal
	for _, name := range []string{"a\x01b", "a\nb", "a\x7fb", strings.Repeat("x", 257), long()} {
		out = append(out, invalid(name, quoted(name), wayOut))
	}
	return out
}

// ownIDs are those that coordinators derive.
func ownIDs() []refusal {
	return []refusal{invalid("entail/settled/1.1.0/executed", `"entail/settled/1.1.0/executed"`, "the coordinators' own, give another")}
}

func orEmpty(r []refusal) []refusal { return append(r, invalid("", `""`, "give 1 to 256 bytes")) }

// words are values that a closed vocabulary does not hold.
func words(code client.Code, what string, available ...string) []refusal {
	var out []refusal
	for _, word := range []string{"wide", "READ-ONLY", " never", "a.b", "*", "a\x01b", long()} {
		out = append(out, refusal{word, code, append([]string{what, quoted(word), "available"}, available...)})
	}
	return out
}

func callIDs() []refusal {
	var out []refusal
	for _, id := range []string{"", "first", "0.1.0", "1.1.0.1", "1.1.-1", "01.1.0", "1.1", long()} {
		out = append(out, invalid(id, "call "+quoted(id), "turn.step.index, such as 1.2.0"))
	}
	return out
}

func prompts() []refusal {
	return []refusal{
		invalid(" \n", "the prompt is empty"),
		invalid(strings.Repeat("x", session.MaxPrompt+1), "524289 bytes", "at most 524288 fit", "a file of the workspace"),
		// It fits, until its control characters are written as JSON.
		{strings.Repeat("\x01", 160<<10), client.CodeTooLarge, []string{"at most 786432 fit", "a file of the workspace"}},
	}
}

func reasons() []refusal {
	return []refusal{invalid(strings.Repeat("x", 4<<10+1), "4097 bytes", "at most 4096 fit", "say it shorter")}
}

func places() []refusal {
	var out []refusal
	for _, dir := range []string{"", "/", "work", "../work", "/tmp/../etc", "/tmp/", "/a\x01b", "/a\nb"} {
		out = append(out, invalid(dir, "cwd "+quoted(dir), "below /", "give the directory"))
	}
	return append(out, refusal{"/" + strings.Repeat("x", 800<<10), client.CodeTooLarge, []string{"at most 786432 fit"}})
}

// refusals gives, for a field by its name, what it does not take. What stands
// under "method.name" goes before what stands under the name alone.
func (w *badWorld) refusals() map[string][]refusal {
	out := map[string][]refusal{
		"id": w.ids(), "session": w.ids(),
		"root": append(notIDs(), w.unknownIDs()...), "parent": append(notIDs(), w.unknownIDs()...), "afterId": append(notIDs(), w.unknownIDs()...),
		"session_create.id": newIDs(
			refusal{w.idle, client.CodeExists, []string{string(w.idle), "take a new id"}},
			invalid(unknownFork, unknownFork, "two hex digits and a ULID")),
		"session_fork.id": newIDs(
			refusal{w.driven, client.CodeInvalid, []string{"the id of a fork is", string(w.idle)}},
			invalid(unknownFork, "the id of a fork is", string(w.idle))),
		"call": append(callIDs(), refusal{"7.7.7", client.CodeNoCall, []string{`"7.7.7"`, "`entail session tail"}}), "callId": callIDs(),

		"label": names(), "delegate.label": orEmpty(names()), "provider": orEmpty(names()), "model": orEmpty(names()),
		"messageId": append(orEmpty(names()), ownIDs()...), "requestId": append(orEmpty(names()), ownIDs()...),
		"prompt": prompts(), "content": append(prompts(), invalid("", "the prompt is empty")),
		"reason": reasons(), "session_release.reason": append(reasons(), invalid("", "needs a reason")),
		"cwd":     places(),
		"persona": {invalid(strings.Repeat("x", session.MaxPrompt+1), "the persona has 524289 bytes", "at most 524288 fit")},
		"script":  {{strings.Repeat("x", 800<<10), client.CodeTooLarge, []string{"at most 786432 fit"}}},
		"traceparent": {
			invalid("a.b", `"a.b"`, "leave it out"), invalid(long(), `"xxx`, "leave it out"),
			invalid("00-"+strings.Repeat("0", 32)+"-00f067aa0ba902b7-01", "TRACE and PARENT not all zero", "leave it out"),
			invalid("00-4bf92f3577b34da6a3ce929d0e0e4736-"+strings.Repeat("0", 16)+"-01", "TRACE and PARENT not all zero", "leave it out"),
		},

		"sandbox": words("UNKNOWN_MODE", "unknown sandbox mode", "workspace-write"), "approvals": words("UNKNOWN_POLICY", "unknown approval policy", "ask, never"),
		"preset":  append(words("UNKNOWN_PRESET", "unknown preset", "workspace-write"), refusal{"custom", "UNKNOWN_PRESET", []string{"custom"}}),
		"surface": words(client.CodeInvalid, "unknown surface", "none, any"), "origin": words(client.CodeInvalid, "unknown origin", "user, subagent, import"),
		"kind": words(client.CodeInvalid, "unknown kind", "spawn, fork"), "mode": words(client.CodeInvalid, "unknown mode", "one-shot, continuable"),
		// What a delegation wishes is policy's to refuse.
		"delegate.sandbox": words(client.CodeDenied, "unknown sandbox mode", "workspace-write"),
		"allow.0":          words(client.CodeDenied, "unknown tool", "bash"), "deny.0": words(client.CodeDenied, "unknown tool", "bash"),

		"limit": {invalid(-1, "limit -1 is negative", "leave it out")}, "wait": {invalid(-1, "wait -1 is negative", "leave it out")},
		"epoch": {{7, client.CodePrecondition, []string{"epoch 7 is not in force"}}, {0, client.CodePrecondition, []string{"epoch 0 is not in force"}}},
		"tail":  {{1, client.CodeConflict, []string{"after 1", "tail has moved"}}, {0, client.CodeConflict, []string{"after 0", "tail has moved"}}},
		"calls": {invalid([]any{}, "no calls", "give the delegating calls")},
		"path":  settingPaths(), "value": capDepths(),
		"workspace": workspaces(), "workspaceKind": words(client.CodeInvalid, "unknown kind", "shared, host"),
		"workerLabels": {invalid(seventeen(), "17 labels", "at most 16")}, "workerLabels.0": workerLabels(), "requireTier": words(client.CodeInvalid, "unknown tier", "namespaces, uid, landlock"),
		"worker": workerNames(), "grace": {invalid("-1s", "grace -1s", "give 0s to 24h"), invalid("25h", "grace 25h", "give 0s to 24h"), invalid("soon", "grace|soon")},
		// The id of a question is a name, and "" is the only one there is, but for an answer.
		"ask":                 append(names(), refusal{"ask-1.1.0-999", client.CodeNoQuestion, []string{`"ask-1.1.0-999"`, "never asked", "`entail approvals ls`"}}),
		"approval_answer.ask": append(orEmpty(names()), refusal{"ask-1.1.0-999", client.CodeNoQuestion, []string{`"ask-1.1.0-999"`, "never asked", "`entail approvals ls`"}}),
		"execution":           words(client.CodeInvalid, "unknown execution", "executed, not-executed"),
		"outcome":             {invalid("", "outcome is missing", "allowed-once or rejected")},
		"message":             prompts(),
		"state":               words(client.CodeInvalid, "unknown state", "ready, cordoned, draining"),
	}
	// Whoever asks whether a space is empty may ask before there is a session.
	out["empty.session"] = append(notIDs(), invalid("", `""`, "not a session id"), refusal{foreignID, client.CodeNotFound, []string{foreignID, "partition"}})
	out["session_fork.source"] = append(w.ids(), refusal{w.driven, client.CodeOpenTurn, []string{string(w.driven), "interrupt it"}})
	out["session_release.id"] = append(w.ids(), refusal{w.idle, client.CodePrecondition, []string{string(w.idle), "not stopped", "nothing to release"}})
	out["relay.epoch"] = []refusal{{7, client.CodePrecondition, []string{"epoch 7 is not in force"}}, {0, client.CodePrecondition, []string{"epoch 0 is not in force"}}}
	out["relay.tail"] = []refusal{invalid(0, "tail is missing", "the record that holds the decision")}
	out["relay.call"] = append(callIDs(), refusal{"7.7.7", client.CodePrecondition, []string{"call 7.7.7", "not one that was allowed"}})
	maps.Copy(out, w.decisions())
	return out
}

// decisions are what the coordinator does not take over from a worker's decision:
// it decides again.
func (w *badWorld) decisions() map[string][]refusal {
	other := func(values ...any) []refusal {
		var out []refusal
		for _, v := range values {
			out = append(out, refusal{v, client.CodePrecondition, []string{"another basis or revision"}})
		}
		return out
	}
	return map[string][]refusal{
		"decision.callId": {invalid("1.1.5", `decision of call "1.1.5"`)}, "decision.verdict": other("deny", "ask", "wide", ""), "decision.mode": other("danger-full-access", "wide", ""),
		"decision.network": other("allow", "deny", "wide"), // a delegation has none
		"sandbox.value":    other("danger-full-access", ""), "approval.value": other("never", ""), "preset.value": other("auto", ""),
		"sandbox.seq": other(0), "approval.seq": other(0), "preset.seq": other(0), "decision.settings": other("", "abc"),
		"decision.revision": {{0, client.CodePrecondition, []string{"revision (0, now 1)"}}, {9, client.CodeConflict, []string{"revision 1, the decision 9", "ask again"}}},
		"by":                {invalid("wide", `"wide"`), invalid("", `""`)},
	}
}

// notJudged are the fields whose values no request is refused for, and why.
func notJudged() map[string]string {
	const own = "the coordinator writes its own"
	return map[string]string{
		"v": "TestBadBodiesAreRefused has its values", "from": "what is not there yet is an empty answer", "past": "a position is waited for", "after": "what is not there yet is an empty answer",
		"decision.reason": "an allowing decision has none, a refused one is no delegation", "final": "says something of refusals alone",
		"grant": "an allowing decision of a delegation has none", "child": own, "childLink": own, "approval": "the default that the revision has",
		"defaults.sandbox": "the default that the revision has", "leftOut": "its items are", "leftOut.0": "what the revision leaves out",
		"allow": "its items are", "deny": "its items are",
	}
}

func workspaces() []refusal {
	var out []refusal
	for _, label := range []string{"Files", "a b", "a=b", "host:a", "a\x01b", strings.Repeat("x", 65), long()} {
		out = append(out, invalid(label, "workspace "+quoted(label), "give a word"))
	}
	return out
}

func workerLabels() []refusal {
	var out []refusal
	for _, label := range []string{"", "GPU", "a b", "a,b", "a\x01b", strings.Repeat("x", 65), long()} {
		out = append(out, invalid(label, "label "+quoted(label), "lower-case letters"))
	}
	return out
}

func seventeen() []any {
	var out []any
	for i := range 17 {
		out = append(out, "l"+strconv.Itoa(i))
	}
	return out
}

func workerNames() []refusal {
	var out []refusal
	for _, name := range []string{"", "a.b", "*", ">", "a b", "w1.>", "a\x01b", "\u00e9", strings.Repeat("x", 257), long()} {
		out = append(out, invalid(name, "worker "+quoted(name), "give one word"))
	}
	return out
}

func settingPaths() []refusal {
	var out []refusal
	for _, path := range []string{"", "nothing", "defaults.nothing", "defaults.sandbox.x", "..", "caps.depth.", long()} {
		out = append(out, invalid(path, "unknown setting "+quoted(path), "`entail config get`"))
	}
	for _, path := range []string{"version", "by", "at", "by.id"} {
		out = append(out, invalid(path, quoted(path), "cannot be set by hand", "`entail config get`"))
	}
	return append(out, invalid("defaults", `set "defaults"`))
}

func capDepths() []refusal {
	var out []refusal
	for _, v := range []any{"many", -1, 1.5, true, []any{}, map[string]any{}} {
		out = append(out, invalid(v, `set "caps.depth" to `, "`entail config get`"))
	}
	return out
}

// requests gives, for each method, a request that is answered.
func (w *badWorld) requests() map[string]any {
	w.t.Helper()
	fork, err := session.ForkID(w.idle.Root(), "01ARZ3NDEKTSV4RRFFQ69G5FAV")
	w.must(err)
	spec := client.DelegateSpec{
		Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work", Persona: "careful", Sandbox: session.ReadOnly,
		Tools: &session.ToolFilter{Allow: &[]string{"read"}, Deny: []string{"bash"}},
	}
	one := client.SessionRequest{Head: head, ID: w.idle}
	return map[string]any{
		client.MethodInfo: head, client.MethodSchemas: head, client.MethodConfigGet: head, client.MethodConfigHistory: head,
		client.MethodShow: one, client.MethodTree: one, client.MethodPolicyGet: one, client.MethodPolicyExplain: one, client.MethodCold: one,
		client.MethodCreate: client.CreateRequest{
			Head: head, ID: newRoot(w.t), Cwd: "/tmp/work", Label: "new", Surface: session.SurfaceAny, Prompt: "go", Sandbox: session.ReadOnly, Approvals: session.Ask,
			Model:       client.Model{Provider: "scripted", Model: "test", Script: "sessions: {}"},
			Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			Workspace:   "files", WorkspaceKind: session.WorkspaceHost, WorkerLabels: []string{"gpu"}, RequireTier: session.TierUID,
		},
		client.MethodFork:          client.ForkRequest{Head: head, ID: fork, Source: w.idle, Label: "fork", Prompt: "go on"},
		client.MethodList:          client.ListRequest{Head: head, Root: w.idle.Root(), Origin: session.OriginUser, Limit: 10},
		client.MethodEvents:        client.EventsRequest{Head: head, ID: w.idle, Limit: 10, Wait: 1},
		client.MethodRecords:       client.RecordsRequest{Head: head, ID: w.idle, Limit: 10},
		client.MethodSend:          client.SendRequest{Head: head, ID: w.idle, MessageID: "m1", Content: "hello"},
		client.MethodInterrupt:     client.StopRequest{Head: head, ID: w.driven, RequestID: "r1", Reason: "why"},
		client.MethodCancel:        client.StopRequest{Head: head, ID: w.idle, RequestID: "r2", Reason: "why"},
		client.MethodRelease:       client.ReleaseRequest{Head: head, ID: w.stopped, Reason: "why"},
		client.MethodPolicySet:     client.PolicySetRequest{Head: head, ID: w.idle, Sandbox: session.WorkspaceWrite},
		client.MethodCallExplain:   client.CallRequest{Head: head, ID: w.driven, Call: "1.1.0"},
		client.MethodConfigSet:     client.ConfigSetRequest{Head: head, Path: "caps.depth", Value: json.RawMessage("2")},
		client.MethodApprovals:     client.ApprovalsRequest{Head: head, Root: w.asking.Root(), Limit: 10},
		client.MethodApproval:      client.ApprovalRequest{Head: head, ID: w.asking, Ask: w.question(w.asking)},
		client.MethodAnswer:        client.AnswerRequest{Head: head, ID: w.asking, Ask: w.question(w.asking), Outcome: session.Rejected, Message: "no"},
		client.MethodCallSettle:    client.SettleRequest{Head: head, ID: w.unknown, Call: "1.1.0", Execution: client.NotExecuted, Message: "the table is empty"},
		client.MethodWorkerList:    head,
		client.MethodWorkerHistory: client.WorkerRequest{Head: head, Worker: "w7"},
		client.MethodWorkerSet:     client.WorkerSetRequest{Head: head, Worker: "w7", State: client.WorkerDraining, Grace: policy.Duration(time.Minute), Reason: "why"},
		client.MethodDelegate:      w.delegations(w.driven, spec),
		client.MethodRelay:         w.relay,
		client.MethodSettled:       client.SettledRequest{Head: head, Session: w.idle},
		client.MethodEmpty:         client.EmptyRequest{Head: head, Session: newRoot(w.t), Past: 1},
	}
}

// inOrder lists the methods so that none takes from a later one what it needs: a
// delegation its revision of the settings, a stop its session.
func inOrder(methods []client.MethodSchema) []client.MethodSchema {
	place := map[string]int{client.MethodDelegate: -1, client.MethodInterrupt: 1, client.MethodCancel: 1}
	return slices.SortedStableFunc(slices.Values(methods), func(a, b client.MethodSchema) int { return place[a.Method] - place[b.Method] })
}

// rivals are the fields that a request leaves out when it has another one.
func rivals(method, name string) []string {
	switch method + "." + name {
	case "policy_set.approvals", "policy_set.preset":
		return []string{"sandbox"}
	case "session_create.preset":
		return []string{"sandbox", "approvals"}
	}
	return nil
}
