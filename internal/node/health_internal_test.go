package node

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealthIsJudged(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	for _, tt := range []struct {
		name                       string
		told                       bool
		broker, started, confirmed bool
		why                        string
	}{
		{"all is well", false, true, true, true, ""},
		{"no broker", false, false, true, true, "the broker"},
		{"mirrors catch up", false, true, false, true, "starting"},
		{"settings unseen for a lease", false, true, true, false, "settings"},
		{"told to stop", true, true, true, true, "stopping"},
	} {
		h, ctx := Health{Broker: tt.broker}, t.Context()
		if tt.told {
			ctx = ended
		}
		h.judge(ctx, tt.started, tt.confirmed)
		if h.Ready != (tt.why == "") || !strings.Contains(h.Why, tt.why) {
			t.Errorf("%s: got %+v", tt.name, h)
		}
	}
}

// What is served can be read and nothing else.
func TestHealthIsOnlyRead(t *testing.T) {
	t.Parallel()
	ready := false
	handler := healthHandler(func() Health { return Health{Kind: "worker", Name: "w1", Ready: ready} })
	for _, tt := range []struct {
		method, path string
		ready        bool
		want         int
	}{
		{http.MethodGet, "/livez", false, http.StatusOK},
		{http.MethodGet, "/readyz", false, http.StatusServiceUnavailable},
		{http.MethodGet, "/readyz", true, http.StatusOK},
		{http.MethodHead, "/readyz", true, http.StatusOK},
		{http.MethodPost, "/readyz", true, http.StatusMethodNotAllowed},
		{http.MethodDelete, "/livez", true, http.StatusMethodNotAllowed},
		{http.MethodGet, "/", true, http.StatusNotFound},
		{http.MethodGet, "/debug/pprof/", true, http.StatusNotFound},
	} {
		ready = tt.ready
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, strings.NewReader("x")))
		if w.Code != tt.want {
			t.Errorf("%s %s, ready %t: %d, want %d", tt.method, tt.path, tt.ready, w.Code, tt.want)
		}
		var h Health
		if tt.method == http.MethodGet && tt.path == "/readyz" {
			if err := json.Unmarshal(w.Body.Bytes(), &h); err != nil || h.Ready != tt.ready || h.Name != "w1" {
				t.Errorf("it says %s (%v)", w.Body, err)
			}
		}
	}
}

// An address without a host is the loopback interface's alone, and one that is taken
// is an error that says what to do.
func TestHealthIsServedOnLoopback(t *testing.T) {
	t.Parallel()
	l, err := listenHTTP(t.Context(), ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsLoopback() {
		t.Errorf("it listens on %v", l.Addr())
	}
	if _, err := serveHealth(t.Context(), l.Addr().String(), slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), "another with -http") {
		t.Errorf("an address that is taken: %v", err)
	}
	stop, err := serveHealth(t.Context(), "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	stop() // nothing was started
}
