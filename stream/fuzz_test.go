package stream_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// The quick way to read an acknowledgement reads what the decoder would: never
// another sequence, and never one out of an error.
func FuzzReadAck(f *testing.F) {
	for _, s := range []string{
		`{"stream":"ENTAIL_LOG_0","seq":17}`, `{"stream":"A","seq":1,"duplicate":true}`, `{"stream":"A","seq":18446744073709551616}`,
		`{"stream":"A\","seq":1}`, `{"stream":"","seq":1}`, `{"stream":"A","seq":+1}`, `{"stream":"A","seq":01}`, `{"stream":"A","seq":1_0}`,
		`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"A","seq":0}`,
		`{"stream":"A","seq":1,"seq":2}`, `{"stream":"A","seq":1}}`, "{\"stream\":\"A\x00\",\"seq\":1}", `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ack, err := stream.ReadAck(data)
		var plain struct {
			jetstream.PubAck
			Error *jetstream.APIError `json:"error"`
		}
		library := json.Unmarshal(data, &plain)
		if good := library == nil && plain.Error == nil && plain.Stream != ""; good != (err == nil) {
			t.Fatalf("%q: %v; the library says %v and reads %+v", data, err, library, plain)
		}
		if err == nil && *ack != plain.PubAck {
			t.Errorf("%q: %+v, the library reads %+v", data, ack, plain.PubAck)
		}
	})
}

// A server's error is a conflict only if it brings the tail, whatever its words.
func FuzzClassify(f *testing.F) {
	f.Add(400, uint16(10071), "wrong last sequence: 5")
	f.Add(400, uint16(10164), "wrong last sequence")
	f.Add(400, uint16(10071), "wrong last sequence")
	f.Add(503, uint16(10077), "maximum bytes exceeded")
	f.Add(503, uint16(10008), "system temporarily unavailable")
	f.Fuzz(func(t *testing.T, code int, errCode uint16, text string) {
		tail, moved, certain := stream.Classified(&jetstream.APIError{Code: code, ErrorCode: jetstream.ErrorCode(errCode), Description: text})
		if want := strings.HasSuffix(text, strconv.FormatUint(tail, 10)); moved && (errCode != 10071 || !certain || !want) {
			t.Errorf("%d %q is taken for a conflict at %d", errCode, text, tail)
		}
		if code >= 500 && text != "maximum bytes exceeded" && errCode != 10071 && errCode != 10164 && certain {
			t.Errorf("%d %d %q is taken for certain", code, errCode, text)
		}
	})
}

// Whoever wrote a message chose its headers; only the last ones are the server's.
// Whatever an answer holds, it ends the page, is refused, or is the message at the
// sequence that the server gave.
func FuzzAnswered(f *testing.F) {
	const added = "Nats-Stream: ENTAIL_LOG_0\r\nNats-Subject: entail.log.0.a.b.turn\r\nNats-Sequence: 7\r\n" +
		"Nats-Time-Stamp: 2026-01-02T03:04:05Z\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 6\r\n"
	for _, h := range []string{
		"NATS/1.0\r\n" + added + "\r\n", "NATS/1.0\r\nNats-Sequence: 1\r\nEntail-Seq: 3\r\n" + added + "\r\n",
		"NATS/1.0 204 EOB\r\n\r\n", "NATS/1.0 404 No Results\r\n\r\n", "NATS/1.0 503\r\n\r\n", "NATS/1.0\r\nStatus: 204\r\n" + added + "\r\n",
		"NATS/1.0\r\nNats-Stream: x\r\n\r\n", "NATS/1.0\r\n" + strings.Replace(added, "7", "-7", 1) + "\r\n",
	} {
		f.Add([]byte(h), []byte("body\n"))
	}
	f.Fuzz(func(t *testing.T, header, body []byte) {
		h, err := nats.DecodeHeadersMsg(header)
		if err != nil {
			return // the client library refuses it before anything of ours sees it
		}
		var seq string
		if all := h["Nats-Sequence"]; len(all) > 0 {
			seq = all[len(all)-1]
		}
		stored := len(h["Nats-Stream"]) > 0
		raw, _, end, err := stream.Answered(&nats.Msg{Header: h, Data: body})
		switch {
		case err != nil:
		case end == stored:
			t.Errorf("%q: the end of a page is %v, a stored message %v", header, end, stored)
		case stored && strconv.FormatUint(raw.StreamSeq, 10) != strings.TrimLeft(seq, "0") && raw.StreamSeq != 0:
			t.Errorf("%q: read at %d, the server says %q", header, raw.StreamSeq, seq)
		case stored && string(raw.Body) != string(body):
			t.Errorf("the body is %q, not %q", raw.Body, body)
		}
	})
}

// A leader's answer to a get is a message, an error or nothing of ours.
func FuzzReadGet(f *testing.F) {
	for _, s := range []string{
		`{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","message":{"subject":"entail.log.0.a.b.turn","seq":7,"data":"eA==","time":"2026-01-02T03:04:05Z"}}`,
		`{"message":{"subject":"s","seq":7,"hdrs":"TkFUUy8xLjANCkVudGFpbC1TZXE6IDMNCg0K"}}`, `{"message":{"hdrs":"eA=="}}`,
		`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`, `{"error":{"code":503}}`, `{}`, `null`, `[]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, err := stream.ReadGet(data)
		if err == nil && raw.StreamSeq == 0 {
			t.Errorf("%q is taken for a message at no sequence", data)
		}
	})
}

// A subject is a record's only in the one form that the record is published on, and
// one in a session's space is never in another session's.
func FuzzParseSubject(f *testing.F) {
	root := rootID(f, 1)
	child := session.ChildID(root, "1.1.0")
	for _, a := range []session.Address{
		{Session: root, Class: session.ClassTurn},
		{Session: child, Class: session.ClassInbox},
		{Session: root, Class: session.ClassGenesis, Creator: root},
		{Session: child, Class: session.ClassGenesis, Creator: root},
	} {
		s := stream.Subject(a)
		f.Add(s)
		f.Add(s + ".x")
		f.Add(strings.Replace(s, "log.0", "log.00", 1))
		f.Add(strings.ToUpper(s))
	}
	f.Add(fmt.Sprintf("entail.log.1.%s.%s.turn", root, root))
	f.Add("entail.log.0...turn")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := stream.ParseSubject(s)
		if err != nil {
			return
		}
		if got := stream.Subject(a); got != s {
			t.Errorf("%q is taken for %q", s, got)
		}
		if space := strings.TrimSuffix(stream.TailFilter(a.Space()), ">"); !strings.HasPrefix(s, space) || strings.ContainsAny(s, "*> \r\n") {
			t.Errorf("%q is taken for a record in the space %q", s, space)
		}
	})
}
