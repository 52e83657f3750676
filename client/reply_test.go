package client_test

import (
	"testing"

	"github.com/entail-fleet/entail/client"
)

// An answer that is none of this version's is never a success: somebody would go on
// as if what it asked for had been done.
func TestAnswersOfNobodyAreNoSuccess(t *testing.T) {
	t.Parallel()
	for text, code := range map[string]client.Code{
		`null`: client.CodeVersion, `{}`: client.CodeVersion, `{"v":2,"result":{}}`: client.CodeVersion, `{"result":{}}`: client.CodeVersion,
		`{"v":1}`: "", `{"v":1,"result":null}`: "", `{"v":1,"result":[]}`: "", `{"v":"1","result":{}}`: "", ``: "", `[]`: "",
		`{"v":2,"error":{"code":"CONFLICT","message":"m"}}`: client.CodeConflict,
	} {
		var out client.StopReply
		if _, err := client.Read([]byte(text), &out); err == nil || client.CodeOf(err) != code {
			t.Errorf("%q: %v, want an error with code %q", text, err, code)
		}
	}
	at, err := client.Read([]byte(`{"v":1,"position":{"partition":2,"sequence":3},"result":{"turn":4}}`), nil)
	if err != nil || *at != (client.Position{Partition: 2, Sequence: 3}) {
		t.Errorf("an answer: %v, %v", at, err)
	}
}
