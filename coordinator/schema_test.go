package coordinator_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// Every method publishes the schemas of its request and its result.
func TestEveryMethodPublishesItsSchemas(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	var reply client.SchemasReply
	d.must(d.api.Call(t.Context(), client.MethodSchemas, head, &reply))
	if len(reply.Methods) < 20 {
		t.Errorf("%d methods, want all", len(reply.Methods))
	}
	for _, m := range reply.Methods {
		for name, raw := range map[string]json.RawMessage{"request": m.Request, "result": m.Result} {
			var schema struct {
				Type string `json:"type"`
			}
			if err := json.Unmarshal(raw, &schema); err != nil || schema.Type != "object" {
				t.Errorf("%s of %s is no schema of an object: %s (%v)", name, m.Method, raw, err)
			}
		}
	}
}

// Whoever has no token, a wrong one or one of too small a role is told so, and
// nothing happens.
func TestSPEC3_RequestsNeedAToken(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	before := d.lines(root)
	for token, method := range map[string]string{"": client.MethodShow, "guessed": client.MethodShow, viewerToken: client.MethodPolicySet} {
		api := client.New(d.broker.Conn(t, broker.Client, "client"), client.Config{Token: token})
		in := client.PolicySetRequest{Head: head, ID: root, Sandbox: "danger-full-access"}
		if err := api.Call(t.Context(), method, in, nil); client.CodeOf(err) != client.CodeUnauthorized {
			t.Errorf("token %q: %v, want UNAUTHORIZED", token, err)
		}
	}
	if after := d.lines(root); len(after) != len(before) {
		t.Errorf("the log grew from %d to %d events", len(before), len(after))
	}
}

// Sending a create again is the same request; another one under the same id is
// refused (SPEC 1.10).
func TestSPEC1_10_ARetryIsTheSameRequest(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2)
	in := client.CreateRequest{Head: head, ID: newRoot(t), Cwd: "/tmp/work", Model: client.Model{Provider: "scripted", Model: "test", Script: "sessions: {}"}}
	for i := range 4 {
		var out client.CreatedReply
		d.must(d.api.Call(t.Context(), client.MethodCreate, in, &out))
		if out.ID != in.ID || out.Existing != (i > 0) {
			t.Errorf("try %d: %+v", i, out)
		}
	}
	in.Cwd = "/tmp/other"
	if err := d.api.Call(t.Context(), client.MethodCreate, in, nil); client.CodeOf(err) != client.CodeExists {
		t.Errorf("another request under the id: %v", err)
	}
}

// Event lines arrive byte for byte: a reader decodes and links them itself.
func TestEventLinesArriveAsTheyAreStored(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root(func(in *client.CreateRequest) { in.Prompt = "a < b && c > d \u2028 é" })
	var reply client.EventsReply
	d.must(d.api.Call(t.Context(), client.MethodEvents, client.EventsRequest{Head: head, ID: root}, &reply))
	for _, line := range reply.Lines {
		if _, err := session.DecodeEvent(line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// The largest record that a log takes can be read over the service.
func TestTheLargestRecordIsAnswered(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	size := func(n int) client.CreateRequest {
		return client.CreateRequest{
			Head: head, ID: newRoot(t), Cwd: "/tmp/work", Prompt: strings.Repeat("x", session.MaxPrompt),
			Model: client.Model{Provider: "scripted", Model: "test", Script: strings.Repeat("#", n)},
		}
	}
	// The limit is met by trying: what stands beside the two texts has some hundred bytes.
	n, in := session.MaxRecord-session.MaxPrompt, client.CreateRequest{}
	for err := error(&client.Error{Code: client.CodeTooLarge}); client.CodeOf(err) == client.CodeTooLarge; n -= 64 {
		in = size(n)
		err = d.api.Call(t.Context(), client.MethodCreate, in, nil)
	}
	var reply client.RecordsReply
	d.must(d.api.Call(t.Context(), client.MethodRecords, client.RecordsRequest{Head: head, ID: in.ID}, &reply))
	if len(reply.Records) != 1 || session.MaxRecord-len(reply.Records[0].Body) > 64 {
		t.Errorf("%d records, the first of %d bytes, want one of nearly %d", len(reply.Records), len(reply.Records[0].Body), session.MaxRecord)
	}
	var events client.EventsReply
	d.must(d.api.Call(t.Context(), client.MethodEvents, client.EventsRequest{Head: head, ID: in.ID}, &events))
	if len(events.Lines) == 0 {
		t.Error("no events")
	}
}
