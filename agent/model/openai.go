package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// Bounds of what an endpoint can make a step cost.
const (
	// MaxResponseBytes is the greatest response that is read.
	MaxResponseBytes = 8 << 20
	// MaxRetryAfter is the longest pause that an endpoint can ask for within a
	// step. When it asks for more, the error is returned at once.
	MaxRetryAfter = time.Minute

	maxHeaderBytes = 256 << 10
)

// OpenAIConfig configures a client of an endpoint that offers the
// chat-completions protocol.
type OpenAIConfig struct {
	// BaseURL is the address that /chat/completions is put behind, such as
	// https://api.openai.com/v1. Required.
	BaseURL string
	// Key gives the bearer token. Default: none is sent.
	Key Key
	// FirstByte bounds the time from the request to the first byte of the
	// answer. Default: 60 s.
	FirstByte time.Duration
	// Idle bounds the silence within an answer. Default: 60 s.
	Idle time.Duration
	// Retries is how often an attempt that failed with [KindTransient] is made
	// again within a step; below zero never. Default: 4.
	Retries int
	// Backoff is the pause before the first retry; each later one is twice as
	// long. An endpoint's Retry-After takes its place. Default: 500 ms.
	Backoff time.Duration
	// MaxBackoff bounds the growth of Backoff. Default: 8 s.
	MaxBackoff time.Duration
	// OnRetry, if not nil, is called before the pause of each retry with its
	// number, from 1, and the error of the attempt that failed.
	OnRetry func(attempt int, err error)
	// Proxy chooses the proxy of a request, as http.ProxyFromEnvironment does.
	// Default: none is used.
	Proxy func(*http.Request) (*url.URL, error)
}

func (c OpenAIConfig) withDefaults() OpenAIConfig {
	if c.FirstByte <= 0 {
		c.FirstByte = time.Minute
	}
	if c.Idle <= 0 {
		c.Idle = time.Minute
	}
	if c.Retries == 0 {
		c.Retries = 4
	}
	if c.Backoff <= 0 {
		c.Backoff = 500 * time.Millisecond
	}
	if c.MaxBackoff <= 0 {
		c.MaxBackoff = 8 * time.Second
	}
	return c
}

// Validate reports what is wrong with the base URL. The text never repeats an
// URL that may hold a password.
func (c OpenAIConfig) Validate() error {
	u, err := url.Parse(c.BaseURL)
	switch {
	case err != nil:
		return errors.New("the base URL is not a URL: want one like https://host/v1")
	case u.User != nil:
		return errors.New("the base URL holds a user or password: leave it out and give the key by itself")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fmt.Errorf("bad base URL %q: want one like https://host/v1", c.BaseURL)
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("the base URL holds a query or fragment: want one like https://host/v1")
	case strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/chat/completions"):
		return fmt.Errorf("bad base URL %q: leave out /chat/completions", c.BaseURL)
	}
	return nil
}

// openAI is the client of an endpoint. It is immutable and safe for use by many
// sessions at once.
type openAI struct {
	cfg       OpenAIConfig
	transport *http.Transport
	service   openai.ChatCompletionService
}

var _ Client = (*openAI)(nil)

// NewOpenAI returns a client of an endpoint that offers the chat-completions
// protocol. The client also is an io.Closer, which drops idle connections.
func NewOpenAI(cfg OpenAIConfig) (Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure model endpoint: %w", err)
	}
	cfg = cfg.withDefaults()
	transport := &http.Transport{
		Proxy:                  cfg.Proxy,
		ForceAttemptHTTP2:      true,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	// NB: openai.NewClient would take keys, addresses and headers from the
	// environment. A service by itself has the options that it is given.
	service := openai.NewChatCompletionService(
		option.WithBaseURL(cfg.BaseURL),
		option.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: stay}),
		option.WithMaxRetries(0),
	)
	return &openAI{cfg: cfg, transport: transport, service: service}, nil
}

// stay makes a redirect the response, since following one would carry the
// conversation, and on the same host the key, to an address nobody chose.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close drops the idle connections.
func (c *openAI) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}

// Step asks the endpoint, again where the failure may pass.
func (c *openAI) Step(ctx context.Context, req Request, onText func(string)) (Response, error) {
	params, err := newParams(req)
	if err != nil {
		return Response{}, fmt.Errorf("model step: %w", err)
	}
	for attempt := 1; ; attempt++ {
		res, err := c.attempt(ctx, params, onText)
		if err == nil {
			return res, nil
		}
		if ctx.Err() != nil {
			return Response{}, fmt.Errorf("model step: %w", ended(ctx))
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || !e.Transient() || attempt > c.cfg.Retries || e.RetryAfter > MaxRetryAfter {
			return Response{}, err
		}
		if c.cfg.OnRetry != nil {
			c.cfg.OnRetry(attempt, err)
		}
		if err := pause(ctx, c.delay(attempt, e.RetryAfter)); err != nil {
			return Response{}, fmt.Errorf("model step: %w", err)
		}
	}
}

// delay returns the pause before a retry. What the endpoint asked for is kept to;
// otherwise the pause doubles, and a random quarter is taken off so that
// sessions that failed together do not come back together.
func (c *openAI) delay(attempt int, retryAfter time.Duration) time.Duration {
	if retryAfter > 0 {
		return retryAfter
	}
	d := c.cfg.Backoff
	for i := 1; i < attempt && d < c.cfg.MaxBackoff; i++ {
		d *= 2
	}
	d = min(d, c.cfg.MaxBackoff)
	return d - rand.N(d/4+1) //nolint:gosec // jitter is no secret
}

// pause waits for d or for the end of the context.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ended(ctx)
	case <-timer.C:
		return nil
	}
}

// ended returns the error of a context that is done, with its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
