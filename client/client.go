package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Config says how to reach the coordinator.
type Config struct {
	// Token is the bearer token of a person or program. A worker has none.
	Token string
	// Worker is the name of a worker; empty for everybody else.
	Worker string
	// Timeout bounds one request. Default 20 s, longer than a broker's failover.
	Timeout time.Duration
	// Try is how long an answer is waited for before the request is sent again: the
	// coordinator that had it may be gone. Default 5 s.
	Try time.Duration
}

// Client speaks to the coordinator over a connection that its caller owns. It is
// safe for use by many goroutines.
type Client struct {
	nc     *nats.Conn
	cfg    Config
	prefix string

	mu   sync.Mutex
	seen map[int]uint64 // newest position of each partition; guarded by mu
}

// New returns a client over nc.
func New(nc *nats.Conn, cfg Config) *Client {
	if cfg.Timeout == 0 {
		cfg.Timeout = 20 * time.Second
	}
	if cfg.Try == 0 {
		cfg.Try = 5 * time.Second
	}
	prefix := SubjectAPI
	if cfg.Worker != "" {
		prefix = SubjectWorker + cfg.Worker + "."
	}
	return &Client{nc: nc, cfg: cfg, prefix: prefix, seen: map[int]uint64{}}
}

// Call sends one request and decodes its result into out, if out is not nil. It
// retries while no coordinator is there, or the one that was asked does not answer,
// until the client's timeout: a request is idempotent by the ids in it. A switch, a
// setting and a release have none. What reached a coordinator of them is not sent
// again, and without an answer the error is CodeUnknown. An *Error is the
// coordinator's answer, or says that there is none.
//
// Whatever this client was told before, the answer is at least that new, whichever
// coordinator gives it.
func (c *Client) Call(ctx context.Context, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode %s request: %w", method, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	msg := nats.NewMsg(c.prefix + method)
	msg.Data = body
	if c.cfg.Token != "" {
		msg.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	c.bringBack(msg)
	look, once := onlyOnce(method)
	answer, err := c.request(ctx, msg, once)
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return &Error{Code: CodeTooLarge, Message: fmt.Sprintf("the %s request has %d bytes, the broker carries %d: put the material into a file of the workspace", method, len(body), c.nc.MaxPayload())}
	case err != nil && once && !unsent(err):
		return &Error{Code: CodeUnknown, Message: fmt.Sprintf("%s was not answered: %v; it may have been done: %s before you send it again", method, err, look)}
	case err != nil:
		return &Error{Code: CodeUnavailable, Message: fmt.Sprintf("no coordinator answered %s: %v; is one running?", method, err)}
	}
	position, err := read(method, answer.Data, out)
	if err != nil {
		return err
	}
	c.remember(position)
	return nil
}

// remember keeps the newest position of each partition.
func (c *Client) remember(p *Position) {
	if p == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[p.Partition] = max(c.seen[p.Partition], p.Sequence)
}

// bringBack adds the positions that the answer must be as new as.
func (c *Client) bringBack(msg *nats.Msg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for partition, sequence := range c.seen {
		msg.Header.Add(HeaderAfter, Position{Partition: partition, Sequence: sequence}.String())
	}
}

// onlyOnce reports whether a request that is sent again may be done twice, having no
// id that would tell, and how to look whether it was done.
func onlyOnce(method string) (look string, once bool) {
	switch method {
	case MethodPolicySet:
		return "look with `entail policy explain` (" + MethodPolicyExplain + ")", true
	case MethodConfigSet:
		return "look with `entail config history` (" + MethodConfigHistory + ")", true
	case MethodRelease:
		return "look with `entail session show` (" + MethodShow + ") whether the session is stopped", true
	}
	return "", false
}

// request asks again while there is nobody to answer, and, unless once says that it
// must not, when whoever was asked does not: a coordinator that was killed is back,
// or another one is there, within a moment.
func (c *Client) request(ctx context.Context, msg *nats.Msg, once bool) (*nats.Msg, error) {
	const pause = 200 * time.Millisecond
	patience := c.cfg.Try
	if once {
		patience = c.cfg.Timeout
	}
	reconnected := time.Now().Add(c.cfg.Try)
	for {
		answer, err := c.try(ctx, msg, patience)
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil, once && !unsent(err):
			return nil, err
		case errors.Is(err, context.DeadlineExceeded):
			continue // the try's
		case !unsent(err), !errors.Is(err, nats.ErrNoResponders) && time.Now().After(reconnected):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// unsent reports whether a request has reached nobody: there is nobody, or the connection
// is being made again and nothing is kept for it meanwhile.
func unsent(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrReconnectBufExceeded)
}

func (c *Client) try(ctx context.Context, msg *nats.Msg, patience time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.nc.RequestMsgWithContext(ctx, msg)
}
