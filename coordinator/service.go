package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// caller is who asks: a person or program with a token, or a worker.
type caller struct {
	party  session.Party
	role   Role
	worker string
}

// endpoint is one method of the service. Request and reply are empty ones, for
// their schemas.
type endpoint struct {
	method         string
	worker         bool
	role           Role
	atTail         bool // a request names what the answer must be as new as
	waits          bool // a request may wait for what is not there yet
	request, reply any
	handle         func(ctx context.Context, who caller, body []byte) (any, *client.Position, error)
}

// subject is where the endpoint listens.
func (e endpoint) subject() string {
	if e.worker {
		return client.SubjectWorker + "*." + e.method
	}
	return client.SubjectAPI + e.method
}

// method is how a request of one type is handled.
type method[In, Out any] func(context.Context, caller, In) (*Out, *client.Position, error)

// api makes an endpoint for people and programs.
func api[In, Out any](name string, role Role, head func(*In) client.Head, fn method[In, Out]) endpoint {
	return endpoint{method: name, role: role, request: new(In), reply: new(Out), handle: on(name, head, fn)}
}

// forWorkers makes an endpoint for workers.
func forWorkers[In, Out any](name string, head func(*In) client.Head, fn method[In, Out]) endpoint {
	return endpoint{method: name, worker: true, request: new(In), reply: new(Out), handle: on(name, head, fn)}
}

// atTail is an endpoint whose requests name a tail, so that it is not for the
// mirror to have reached all that the caller was ever told.
func atTail(e endpoint) endpoint {
	e.atTail = true
	return e
}

// waits is an endpoint whose requests may wait for long and do nothing meanwhile, so
// that they take none of the hands that all others need.
func waits(e endpoint) endpoint {
	e.waits = true
	return e
}

// on makes an endpoint's handler out of a typed one. The request's version is
// checked before the handler runs.
func on[In, Out any](name string, head func(*In) client.Head, fn method[In, Out]) func(context.Context, caller, []byte) (any, *client.Position, error) {
	return func(ctx context.Context, who caller, body []byte) (any, *client.Position, error) {
		var in In
		if err := decode(name, body, &in); err != nil {
			return nil, nil, err
		}
		if h := head(&in); h.Version != client.APIVersion {
			return nil, nil, &client.Error{Code: client.CodeVersion, Message: fmt.Sprintf(
				"the request has version %d, this coordinator speaks %d: use a client of that version", h.Version, client.APIVersion)}
		}
		return fn(ctx, who, in)
	}
}

// serve answers requests until ctx ends, then waits for those in hand.
func (c *Coordinator) serve(ctx context.Context) error {
	svc, err := micro.AddService(c.cfg.Conn, micro.Config{
		Name: "entail", Version: "1.0.0", Description: "Entail coordinator",
		QueueGroup: "coordinator",
		Metadata:   map[string]string{"name": c.cfg.Name, "version": c.cfg.Version},
	})
	if err != nil {
		return fmt.Errorf("start the service: %w", err)
	}
	working, waiting := newHands(ctx.Done(), 64*runtime.GOMAXPROCS(0)), newHands(ctx.Done(), mostWaiting)
	for _, e := range c.endpoints() {
		hands := working
		if e.waits {
			hands = waiting
		}
		handler := micro.HandlerFunc(func(r micro.Request) { hands.do(func() { c.answer(ctx, e, r) }) })
		if err := svc.AddEndpoint(e.method, handler, micro.WithEndpointSubject(e.subject())); err != nil {
			return errors.Join(fmt.Errorf("add endpoint %s: %w", e.method, err), svc.Stop())
		}
	}
	close(c.ready)
	<-ctx.Done()
	err = svc.Stop()
	working.wait()
	waiting.wait()
	return err
}

// mostWaiting bounds the requests that wait. Each costs a goroutine.
const mostWaiting = 4096

// longest bounds a request, so that one that waits for what never comes holds no
// hand for ever.
const longest = 30 * time.Second

// answer is a [client.Reply] whose result is not encoded yet.
type answer struct {
	Version  int              `json:"v"`
	Position *client.Position `json:"position,omitempty"`
	Error    *client.Error    `json:"error,omitempty"`
	Result   any              `json:"result,omitempty"`
}

// answer handles one request.
func (c *Coordinator) answer(ctx context.Context, e endpoint, r micro.Request) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	reply := answer{Version: client.APIVersion}
	who, err := c.authenticate(e, r)
	if err == nil && !e.atTail {
		err = c.reach(ctx, r.Headers().Values(client.HeaderAfter))
	}
	if err == nil {
		reply.Result, reply.Position, err = e.handle(ctx, who, r.Data())
	}
	if err != nil {
		reply.Result, reply.Position = nil, nil
		reply.Error = toError(err)
		if reply.Error.Code == client.CodeInternal {
			c.cfg.Logger.Error("request failed", slog.String("method", e.method), slog.Any("error", err))
		}
	}
	if err := c.respond(r, reply); err != nil {
		c.cfg.Logger.Error("answer", slog.String("method", e.method), slog.Any("error", err))
	}
}

// respond sends a reply. One that the broker does not carry is answered all the
// same: whoever waits for it would take silence for an outage.
func (c *Coordinator) respond(r micro.Request, reply answer) error {
	body, err := encode(reply)
	if err != nil {
		return err
	}
	if most := c.cfg.Conn.MaxPayload(); int64(len(body)) > most {
		reply.Result, reply.Position = nil, nil
		reply.Error = &client.Error{Code: client.CodeTooLarge, Message: fmt.Sprintf(
			"the answer has %d bytes, the broker carries %d: ask for less with a limit, or raise the broker's max_payload", len(body), most)}
		if body, err = encode(reply); err != nil {
			return err
		}
	}
	return r.Respond(body)
}

// encode writes JSON without escaping what only HTML minds, so that event lines
// arrive byte for byte as they are linked.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// reach waits until the mirrors are as new as what the caller was told before. A
// lost partition never is: who asks about it is told so by what is asked, and who
// asks about another one, having been told of this one once, is answered.
func (c *Coordinator) reach(ctx context.Context, positions []string) error {
	for _, text := range positions {
		p, err := client.ParsePosition(text)
		if err != nil {
			return invalid("header %s: %v", client.HeaderAfter, err)
		}
		if err := c.cfg.Store.WaitFor(ctx, p.Partition, p.Sequence); err != nil && !errors.Is(err, session.ErrLoss) {
			return err
		}
	}
	return nil
}

// authenticate says who asks. A worker's name stands in the subject, which only
// its own broker identity may publish to; everybody else shows a token.
func (c *Coordinator) authenticate(e endpoint, r micro.Request) (caller, error) {
	if e.worker {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.Subject(), client.SubjectWorker), ".")
		return caller{worker: name, party: session.Party{Kind: session.Program, ID: "worker " + name}}, nil
	}
	token, ok := strings.CutPrefix(r.Headers().Get("Authorization"), "Bearer ")
	if !ok {
		return caller{}, &client.Error{Code: client.CodeUnauthorized, Message: "the request has no bearer token: use the token file that the server wrote"}
	}
	t, ok := c.cfg.bearer(token)
	if !ok {
		return caller{}, &client.Error{Code: client.CodeUnauthorized, Message: "the bearer token is not known here: use the token file that this server wrote"}
	}
	if t.Role < e.role {
		return caller{}, &client.Error{Code: client.CodeUnauthorized, Message: fmt.Sprintf("%s may not call %s", t.Party.ID, e.method)}
	}
	return caller{party: t.Party, role: t.Role}, nil
}

// toError maps what went wrong to a code that programs match on.
func toError(err error) *client.Error {
	if e, ok := errors.AsType[*client.Error](err); ok {
		short := *e
		short.Message = client.Shorten(e.Message)
		return &short
	}
	out := &client.Error{Code: client.CodeInternal, Message: client.Shorten(err.Error())}
	if corrupt, ok := errors.AsType[*session.CorruptError](err); ok {
		seq := corrupt.Seq
		out.Session, out.Seq = corrupt.Session, &seq
	}
	if code := policy.CodeOf(err); code != "" {
		out.Code = client.Code(code)
		return out
	}
	var denied *delegation.DeniedError
	switch {
	case errors.As(err, &denied):
		out.Code = client.CodeDenied
	case errors.Is(err, session.ErrNotFound):
		out.Code = client.CodeNotFound
		out.Message += "; " + wayToSessions
	case errors.Is(err, session.ErrLoss):
		out.Code = client.CodeLoss
	case errors.Is(err, session.ErrCorrupt), errors.Is(err, session.ErrFormat):
		out.Code = client.CodeStopped
	case errors.Is(err, session.ErrConflict):
		out.Code = client.CodeConflict
	case errors.Is(err, session.ErrTooLarge):
		out.Code = client.CodeTooLarge
		out.Message += ": put the material into a file of the workspace"
	case errors.Is(err, session.ErrBadID), errors.Is(err, delegation.ErrInvalid):
		out.Code = client.CodeInvalid
	case errors.Is(err, delegation.ErrOpenTurn):
		out.Code = client.CodeOpenTurn
	case errors.Is(err, sessionstore.ErrNotHalted):
		out.Code = client.CodePrecondition
		out.Message += ": there is nothing to release"
	case errors.Is(err, delegation.ErrPrecondition), errors.Is(err, sessionstore.ErrNeverBegan):
		out.Code = client.CodePrecondition
	case errors.Is(err, delegation.ErrOtherRequest):
		out.Code = client.CodeExists
	case errors.Is(err, stream.ErrUnknown):
		out.Code = client.CodeUnknown
	case errors.Is(err, stream.ErrFull):
		out.Code = client.CodeFull
	case errors.Is(err, sessionstore.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		out.Code = client.CodeUnavailable
	}
	return out
}
