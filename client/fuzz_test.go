package client_test

import (
	"encoding/json"
	"reflect"
	"strconv"
	"testing"

	"github.com/entail-fleet/entail/client"
)

// A position has one form, which goes into a header and comes back.
func FuzzParsePosition(f *testing.F) {
	for _, s := range []string{"0:0", "7:18446744073709551615", "0:18446744073709551616", "-1:1", "+1:1", "01:1", "1:1 ", "1:1:1", "1 :1", "\n1:1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := client.ParsePosition(s); err == nil && p.String() != s {
			t.Errorf("%q is taken for position %s", s, p)
		}
	})
}

// replies are what the answers of the methods hold.
var replies = []any{
	client.Done{},
	client.InfoReply{},
	client.CreatedReply{},
	client.ListReply{},
	client.Summary{},
	client.EventsReply{},
	client.RecordsReply{},
	client.StopReply{},
	client.ReleaseReply{},
	client.PolicyReply{},
	client.ExplainReply{},
	client.CallReply{},
	client.ConfigReply{},
	client.ConfigHistoryReply{},
	client.DelegateReply{},
	client.ColdReply{},
}

// Whatever answers, it is a result, an error or none of ours: only what names this
// version and holds a result is a success.
func FuzzReadReply(f *testing.F) {
	for i, r := range replies {
		result, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		good, err := json.Marshal(client.Reply{Version: client.APIVersion, Position: &client.Position{Sequence: 7}, Result: result})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), good)
	}
	for _, text := range []string{
		"null", "{}", "[]", `{"v":1}`, `{"v":1,"result":null}`, `{"v":2,"result":{}}`, `{"v":1,"error":{"code":"CONFLICT"},"result":{}}`,
		`{"v":1,"error":null,"result":{}}`, `{"v":1,"Error":{"code":"CONFLICT"},"result":{}}`, "{\"v\":1,\"error\":{\"code\":\"CONFLICT\"},\"re\x88ult\":{}}", `{"v":1,"result":{}}x`, `{"v":1,"position":{"partition":-1},"result":{}}`,
	} {
		f.Add(uint8(0), []byte(text))
	}
	f.Fuzz(func(t *testing.T, which uint8, answer []byte) {
		out := reflect.New(reflect.TypeOf(replies[int(which)%len(replies)])).Interface()
		_, err := client.Read(answer, out)
		var members map[string]json.RawMessage
		switch problem := json.Unmarshal(answer, &members); {
		case err != nil:
		case problem != nil:
			t.Errorf("%q is no object and was taken for an answer", answer)
		case string(members["v"]) != strconv.Itoa(client.APIVersion):
			t.Errorf("%q of another version was taken for a success", answer)
		case members["error"] != nil && string(members["error"]) != "null":
			t.Errorf("%q holds an error and was taken for a success", answer)
		case members["result"] == nil || string(members["result"]) == "null":
			t.Errorf("%q holds no result and was taken for a success", answer)
		}
	})
}
