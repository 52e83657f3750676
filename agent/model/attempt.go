package model

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

var errTooLarge = fmt.Errorf("the response is larger than %d bytes", MaxResponseBytes)

// attempt asks the endpoint once. An error other than the end of ctx is an *Error
// without the key.
func (c *openAI) attempt(ctx context.Context, params openai.ChatCompletionNewParams, onText func(string)) (Response, error) {
	secret, err := c.cfg.Key.reveal()
	if err != nil {
		return Response{}, err
	}
	ctx, dog := watch(ctx, c.cfg.FirstByte, c.cfg.Idle)
	defer dog.stop()
	raw, err := c.open(ctx, dog, params, secret)
	if err != nil {
		return Response{}, failure(ctx, err, secret)
	}
	defer func() { _ = raw.Body.Close() }()
	res, err := readStream(raw, onText)
	if err != nil {
		return Response{}, failure(ctx, err, secret)
	}
	return res, nil
}

// open sends the request and returns a response that is a stream of events.
func (c *openAI) open(ctx context.Context, dog *watchdog, params openai.ChatCompletionNewParams, secret string) (*http.Response, error) {
	var raw *http.Response
	opts := []option.RequestOption{
		option.WithJSONSet("stream", true),
		option.WithHeader("Accept", "text/event-stream"),
		option.WithResponseBodyInto(&raw),
		// The library would read an error's body whole and keep it with the
		// request, key and all. So it sees good responses only.
		option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			res, err := next(r)
			if err != nil {
				return nil, err
			}
			res.Body = &guardedBody{body: res.Body, left: MaxResponseBytes, dog: dog}
			if err := checkResponse(res); err != nil {
				_ = res.Body.Close()
				return nil, err
			}
			return res, nil
		}),
	}
	if secret != "" {
		opts = append(opts, option.WithAPIKey(secret))
	}
	if _, err := c.service.New(ctx, params, opts...); err != nil {
		return nil, err
	}
	return raw, nil
}

// checkResponse returns the error that a response is, or nil for a stream of events.
func checkResponse(res *http.Response) error {
	if res.StatusCode/100 != 2 {
		return statusError(res)
	}
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil || kind != "text/event-stream" {
		return &Error{Kind: KindMalformed, Status: res.StatusCode, Err: fmt.Errorf(
			"answered with %q instead of an event stream: check the base URL, which often ends in /v1",
			res.Header.Get("Content-Type"))}
	}
	return nil
}

// failure turns whatever ended an attempt into an *Error of plain text.
func failure(ctx context.Context, err error, secret string) error {
	if stall, ok := errors.AsType[*stallError](context.Cause(ctx)); ok {
		return &Error{Kind: KindTransient, Err: stall}
	}
	if e, ok := errors.AsType[*Error](err); ok {
		flat := *e
		flat.Err = plain(e.Err, secret)
		return &flat
	}
	kind := KindTransient
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		kind = KindRefused
	}
	if errors.Is(err, errTooLarge) {
		kind = KindMalformed
	}
	return &Error{Kind: kind, Err: plain(err, secret)}
}

// plain returns an error with the text of err and nothing else. The key goes before
// the text is cut, lest half of it stay.
func plain(err error, secret string) error {
	return errors.New(clip(oneLine(scrub(err.Error(), secret))))
}

// stallError is the cause of an attempt's end by the watchdog.
type stallError struct {
	what  string
	after time.Duration
}

func (e *stallError) Error() string { return fmt.Sprintf("%s within %s", e.what, e.after) }

// watchdog ends an attempt that makes no progress.
type watchdog struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer // until the first byte, then replaced by one for silence
	idle   time.Duration
	begun  bool // owned by the reader of the body
}

// watch returns a context that ends with a *stallError when progress fails to be
// called in time.
func watch(ctx context.Context, firstByte, idle time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(firstByte, func() { cancel(&stallError{"no answer", firstByte}) })
	return ctx, &watchdog{cancel: cancel, timer: timer, idle: idle}
}

// progress notes that a byte arrived.
func (d *watchdog) progress() {
	if d.begun {
		d.timer.Reset(d.idle)
		return
	}
	d.begun = true
	d.timer.Stop()
	d.timer = time.AfterFunc(d.idle, func() { d.cancel(&stallError{"no more of the answer", d.idle}) })
}

func (d *watchdog) stop() {
	d.timer.Stop()
	d.cancel(nil)
}

// guardedBody is a response's body that reports progress and has an end.
type guardedBody struct {
	body io.ReadCloser
	left int
	dog  *watchdog
}

// Read reads from the body, at most MaxResponseBytes in all.
func (b *guardedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.body.Read(p[:min(len(p), b.left)])
	b.left -= n
	if n > 0 {
		b.dog.progress()
	}
	return n, err
}

// Close closes the body.
func (b *guardedBody) Close() error { return b.body.Close() }
