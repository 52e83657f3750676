package client_test

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPositionsAreOneForm(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]client.Position{"0:0": {}, "3:18446744073709551615": {Partition: 3, Sequence: 1<<64 - 1}} {
		got, err := client.ParsePosition(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q is %+v (%v), want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1", "1:", ":1", "1:2:3", "01:2", "a:b", "1:-2", " 1:2"} {
		if p, err := client.ParsePosition(text); err == nil {
			t.Errorf("%q was read as %+v", text, p)
		}
	}
}

// A client asks again while nobody answers, shows its token, and brings back the
// newest position of each partition that it was told.
func TestRequestsBringBackWhatWasTold(t *testing.T) {
	t.Parallel()
	b := natstest.Start(t)
	api := client.New(b.Conn(t, broker.Client, "client"), client.Config{Token: "secret", Timeout: 10 * time.Second})
	requests := make(chan *nats.Msg, 8)
	answered := 0
	serve := func() {
		nc := b.Conn(t, broker.Coordinator, "coordinator")
		_, err := nc.Subscribe(client.SubjectAPI+">", func(m *nats.Msg) {
			requests <- m
			answered++
			reply := client.Reply{Version: client.APIVersion, Position: &client.Position{Partition: answered % 2, Sequence: uint64(100 * answered)}, Result: json.RawMessage("{}")}
			body, err := json.Marshal(reply)
			if err != nil {
				t.Error(err)
			}
			if err := m.Respond(body); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
	first := make(chan error, 1)
	go func() {
		first <- api.Call(t.Context(), client.MethodInfo, client.SessionRequest{Head: client.Head{Version: client.APIVersion}}, nil)
	}()
	serve() // the first request was made, or will be, without anybody to answer
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := api.Call(t.Context(), client.MethodInfo, client.SessionRequest{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var last *nats.Msg
	for range 4 {
		last = <-requests
		if got := last.Header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("the request shows %q", got)
		}
	}
	want := map[string]bool{"1:300": true, "0:200": true}
	got := map[string]bool{}
	for _, v := range last.Header.Values(client.HeaderAfter) {
		got[v] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("positions brought back (-want +got):\n%s", diff)
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("ask: %w", &client.Error{Code: client.CodeConflict, Message: "tail has moved"})
	if client.CodeOf(err) != client.CodeConflict {
		t.Errorf("code of %v is %q", err, client.CodeOf(err))
	}
	for code, want := range map[client.Code]bool{client.CodeConflict: true, client.CodeUnknown: true, client.CodeUnavailable: true, client.CodeDenied: false, client.CodeStopped: false} {
		if got := (&client.Error{Code: code}).Temporary(); got != want {
			t.Errorf("%s temporary: %v", code, got)
		}
	}
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	b := natstest.Start(t)
	api := client.New(b.Conn(t, broker.Client, "client"), client.Config{Timeout: 300 * time.Millisecond})
	if err := api.Call(t.Context(), client.MethodInfo, client.SessionRequest{}, nil); client.CodeOf(err) != client.CodeUnavailable {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
}

// What the broker would not carry is told as what it is, not as an outage.
func TestRequestThatIsTooLarge(t *testing.T) {
	t.Parallel()
	b := natstest.Start(t)
	nc := b.Conn(t, broker.Client, "client")
	api := client.New(nc, client.Config{Timeout: 10 * time.Second})
	err := api.Call(t.Context(), client.MethodSend, client.SendRequest{Content: strings.Repeat("x", int(nc.MaxPayload()))}, nil)
	if client.CodeOf(err) != client.CodeTooLarge || !strings.Contains(err.Error(), "a file of the workspace") {
		t.Errorf("got %v, want TOO_LARGE and a way out", err)
	}
}

// A message that quotes what was sent keeps what is wrong and the way out.
func TestShorten(t *testing.T) {
	t.Parallel()
	if whole := "unknown mode \"wide\" (available: narrow)"; client.Shorten(whole) != whole {
		t.Errorf("a short message became %q", client.Shorten(whole))
	}
	long := "unknown mode \"" + strings.Repeat("é", 100<<10) + "\" (available: narrow)"
	short := client.Shorten(long)
	if len(short) > 1000 || !utf8.ValidString(short) || !strings.HasPrefix(short, "unknown mode") || !strings.HasSuffix(short, "(available: narrow)") || !strings.Contains(short, strconv.Itoa(len(long))) {
		t.Errorf("%d bytes: %q", len(short), short)
	}
}

// A coordinator that dies with a request in its hands does not cost the caller all
// its patience: the request goes to the next one.
func TestRequestIsSentAgainWhenItIsNotAnswered(t *testing.T) {
	t.Parallel()
	b := natstest.Start(t)
	asked := make(chan struct{}, 8)
	_, err := b.Conn(t, broker.Coordinator, "coordinator").Subscribe(client.SubjectAPI+">", func(m *nats.Msg) {
		asked <- struct{}{}
		if len(asked) == 1 {
			return
		}
		if err := m.Respond([]byte(`{"v":1,"result":{}}`)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	api := client.New(b.Conn(t, broker.Client, "client"), client.Config{Timeout: time.Minute, Try: 200 * time.Millisecond})
	if err := api.Call(t.Context(), client.MethodInfo, client.SessionRequest{}, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(asked); n < 2 {
		t.Errorf("it was asked %d times", n)
	}
}

// A switch has no id by which a second one would be known for the same. So what a
// coordinator was given is not given to another one, and without an answer its
// outcome is unknown; while nobody is there to take it, it waits as any request.
func TestASwitchIsNotSentAgain(t *testing.T) {
	t.Parallel()
	b := natstest.Start(t)
	nc := b.Conn(t, broker.Client, "client")
	requests := make(chan string, 8)
	cfg := client.Config{Timeout: time.Second, Try: 50 * time.Millisecond}
	for method, look := range map[string]string{
		client.MethodPolicySet: client.MethodPolicyExplain, client.MethodConfigSet: client.MethodConfigHistory, client.MethodRelease: client.MethodShow,
	} {
		if err := client.New(nc, cfg).Call(t.Context(), method, client.SessionRequest{}, nil); client.CodeOf(err) != client.CodeUnavailable {
			t.Errorf("%s without a coordinator: %v, want UNAVAILABLE", method, err)
		}
		coordinator := b.Conn(t, broker.Coordinator, "coordinator")
		if _, err := coordinator.Subscribe(client.SubjectAPI+method, func(m *nats.Msg) { requests <- m.Subject }); err != nil {
			t.Fatal(err)
		}
		if err := coordinator.Flush(); err != nil {
			t.Fatal(err)
		}
		err := client.New(nc, cfg).Call(t.Context(), method, client.SessionRequest{}, nil)
		if client.CodeOf(err) != client.CodeUnknown || !strings.Contains(err.Error(), look) {
			t.Errorf("%s without an answer: %v, want OUTCOME_UNKNOWN that names %s", method, err, look)
		}
		if n := len(requests); n != 1 {
			t.Errorf("%s was sent %d times, want once", method, n)
		}
		for len(requests) > 0 {
			<-requests
		}
	}
}

// gate is a dialer that lets nobody through while it is shut.
type gate struct {
	net.Dialer
	open chan struct{} // receives once for each dial
}

func (g *gate) Dial(network, address string) (net.Conn, error) {
	<-g.open
	return g.Dialer.Dial(network, address)
}

// While a connection is made again, nothing is kept for it and nothing has been sent: the
// request waits for it, also one that is sent once.
func TestRequestWaitsForItsConnection(t *testing.T) {
	t.Parallel()
	b := natstest.Start(t)
	for _, method := range []string{client.MethodInfo, client.MethodPolicySet} {
		if _, err := b.Conn(t, broker.Coordinator, "coordinator").Subscribe(client.SubjectAPI+method, func(m *nats.Msg) {
			if err := m.Respond([]byte(`{"v":1,"result":{}}`)); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		g := &gate{open: make(chan struct{}, 1)}
		g.open <- struct{}{}
		nc := b.Conn(t, broker.Client, "client", nats.SetCustomDialer(g), nats.CustomReconnectDelay(func(int) time.Duration { return 0 }))
		api := client.New(nc, client.Config{Timeout: 20 * time.Second})
		if err := nc.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- api.Call(t.Context(), method, client.SessionRequest{}, nil) }()
		select {
		case err := <-ended:
			t.Errorf("%s ended with %v while there was no connection", method, err)
		case <-time.After(300 * time.Millisecond): // it waits
		}
		close(g.open)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
}
