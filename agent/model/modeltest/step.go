package modeltest

import (
	"fmt"
	"io"
	"net/http"
)

// Step answers one request.
type Step func(w http.ResponseWriter, r *http.Request, req Request)

// Frames returns a step that streams frames with exactly this data, for what
// [Reply] does not say. It ends the response in good order; to be complete the
// last frame is [Done].
func Frames(data ...string) Step {
	return func(w http.ResponseWriter, _ *http.Request, _ Request) {
		startStream(w)
		for _, d := range data {
			writeFrame(w, d)
		}
	}
}

// Raw returns a step that answers 200 with this type and body.
func Raw(contentType, body string) Step {
	return func(w http.ResponseWriter, _ *http.Request, _ Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

// HTML returns a step that answers with a web page, as a captive portal or a
// wrong base URL does.
func HTML() Step {
	return Raw("text/html; charset=utf-8", "<!doctype html><title>Welcome</title><p>Please log in.</p>")
}

// Status returns a step that answers with a status and the published form of an
// error.
func Status(status int, kind, code, message string) Step {
	return func(w http.ResponseWriter, _ *http.Request, _ Request) {
		writeError(w, status, kind, code, message)
	}
}

// TooManyRequests returns a step that answers 429 and asks to come back after
// retryAfter, in seconds or as an HTTP date. An empty one asks nothing.
func TooManyRequests(retryAfter string) Step {
	return func(w http.ResponseWriter, _ *http.Request, _ Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		writeError(w, http.StatusTooManyRequests, "requests", "rate_limit_exceeded", "Rate limit reached")
	}
}

// ServerError returns a step that answers 500.
func ServerError() Step {
	return Status(http.StatusInternalServerError, "server_error", "", "The server had an error while processing your request")
}

// Redirect returns a step that sends the client elsewhere with 307, which asks
// to repeat the request with its body.
func Redirect(url string) Step {
	return func(w http.ResponseWriter, r *http.Request, _ Request) {
		http.Redirect(w, r, url, http.StatusTemporaryRedirect)
	}
}

// Silent returns a step that takes the request and answers nothing, until the
// client goes away.
func Silent() Step {
	return func(_ http.ResponseWriter, r *http.Request, _ Request) { <-r.Context().Done() }
}

// Stall returns a step that streams the first n frames of the reply and then
// nothing more, until the client goes away.
func Stall(n int, p Reply) Step {
	return func(w http.ResponseWriter, r *http.Request, req Request) {
		startStream(w)
		for _, frame := range p.Frames(req)[:n] {
			writeFrame(w, frame)
		}
		<-r.Context().Done()
	}
}

// Cut returns a step that streams the first n frames of the reply and half of
// the next one and then breaks the connection.
func Cut(n int, p Reply) Step {
	return func(w http.ResponseWriter, _ *http.Request, req Request) {
		startStream(w)
		frames := p.Frames(req)
		for _, frame := range frames[:n] {
			writeFrame(w, frame)
		}
		_, _ = io.WriteString(w, "data: "+frames[n][:len(frames[n])/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // the documented way to break a connection
	}
}

// End returns a step that streams the first n frames of the reply and ends the
// response in good order, as a proxy does that lost its server.
func End(n int, p Reply) Step {
	return func(w http.ResponseWriter, _ *http.Request, req Request) {
		startStream(w)
		for _, frame := range p.Frames(req)[:n] {
			writeFrame(w, frame)
		}
	}
}

func startStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
}

func writeFrame(w http.ResponseWriter, data string) {
	_, _ = io.WriteString(w, "data: "+data+"\n\n")
	_ = http.NewResponseController(w).Flush()
}

func writeError(w http.ResponseWriter, status int, kind, code, message string) {
	codeJSON := "null"
	if code != "" {
		codeJSON = quote(code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"error":{"message":%s,"type":%s,"param":null,"code":%s}}`, quote(message), quote(kind), codeJSON) //nolint:gosec // JSON strings in a JSON answer
}
