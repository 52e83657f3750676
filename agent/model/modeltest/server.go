package modeltest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// maxBody is the greatest request that the handler reads.
const maxBody = 32 << 20

// Handler answers chat-completions requests with steps and keeps the requests.
type Handler struct {
	// Key, if not empty, is the only bearer token that is served. Set it before
	// the first request.
	Key string

	choose func(Request) Step

	mu       sync.Mutex // guards requests
	requests []Request
}

// NewHandler returns a handler that answers each request with the step that
// choose returns for it. Requests are served at once, so choose must be safe for
// that. A nil step answers 400.
func NewHandler(choose func(Request) Step) *Handler {
	return &Handler{choose: choose}
}

// InOrder returns a choice that gives each step once, in order, whatever the
// request is.
func InOrder(steps ...Step) func(Request) Step {
	var mu sync.Mutex
	next := 0
	return func(Request) Step {
		mu.Lock()
		defer mu.Unlock()
		if next == len(steps) {
			return nil
		}
		next++
		return steps[next-1]
	}
}

// Requests returns the requests so far, in the order of arrival, those that
// were refused included.
func (h *Handler) Requests() []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

// ServeHTTP answers POST on any path that ends in /chat/completions.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		writeError(w, http.StatusNotFound, "invalid_request_error", "unknown_url",
			"Unknown request URL: "+r.Method+" "+r.URL.Path)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request_error", "", err.Error())
		return
	}
	req, err := decode(r.Header, body)
	h.mu.Lock()
	h.requests = append(h.requests, req)
	h.mu.Unlock()
	if h.Key != "" && r.Header.Get("Authorization") != "Bearer "+h.Key {
		writeError(w, http.StatusUnauthorized, "invalid_request_error", "invalid_api_key",
			"Incorrect API key provided: "+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		return
	}
	if err == nil {
		err = req.Check()
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request_error", "", err.Error())
		return
	}
	step := h.choose(req)
	if step == nil {
		writeError(w, http.StatusBadRequest, "invalid_request_error", "", "the test has no step for this request")
		return
	}
	step(w, r, req)
}

// Server is a [Handler] on a local address.
type Server struct {
	*Handler
	// URL is the base URL that a client is given; it ends in /v1.
	URL string
}

// NewServer starts a server on 127.0.0.1 that answers with the steps in order. It
// is closed when the test ends.
func NewServer(t testing.TB, steps ...Step) *Server {
	t.Helper()
	return NewServerFunc(t, InOrder(steps...))
}

// NewServerFunc starts a server on 127.0.0.1 that answers as [NewHandler] says. It
// is closed when the test ends.
func NewServerFunc(t testing.TB, choose func(Request) Step) *Server {
	t.Helper()
	h := NewHandler(choose)
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		// A step may hold its request until the client goes away.
		srv.CloseClientConnections()
		srv.Close()
	})
	return &Server{Handler: h, URL: srv.URL + "/v1"}
}
