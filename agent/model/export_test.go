package model

import (
	"io"
	"net/http"
)

// ReadStream reads a body as the client reads an answer.
func ReadStream(body io.Reader, onText func(string)) (Response, error) {
	header := http.Header{"Content-Type": {"text/event-stream"}}
	return readStream(&http.Response{Header: header, Body: io.NopCloser(body)}, onText)
}
