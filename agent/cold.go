package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// fewEvents is the length up to which a log is read from the stream: as quickly as
// from a mirror, as measured, and with nothing to prove.
const fewEvents = 48

// cold reads logs from a coordinator's mirror. What it gives may be old or wrong:
// its caller proves it.
type cold struct {
	client *client.Client
	logger *slog.Logger

	mu     sync.Mutex
	silent time.Time // until when nobody is asked, zero if the last one answered; guarded by mu
}

const (
	// limitCold is how long one answer is waited for.
	limitCold = time.Second
	// limitSilent is how long nobody is asked after nobody answered.
	limitSilent = 5 * time.Second
)

// errSilent says that no coordinator answers.
var errSilent = errors.New("no coordinator gives cold records")

// records implements source. A creator is of no use here.
func (c *cold) records(ctx context.Context, id, _ session.ID, fn func(session.Raw) error) error {
	after := uint64(0)
	for {
		reply, err := c.ask(ctx, id, after)
		if err != nil {
			return err
		}
		from := after
		if err := client.Unpack(reply.Records, func(raw session.Raw) error {
			after = raw.StreamSeq
			return fn(raw)
		}); err != nil {
			return err
		}
		if !reply.More {
			return nil
		}
		if after <= from {
			return fmt.Errorf("records of %s: what follows %d does not follow it", id, from)
		}
	}
}

// ask asks for one piece.
func (c *cold) ask(ctx context.Context, id session.ID, after uint64) (client.ColdReply, error) {
	var reply client.ColdReply
	if !c.answers() {
		return reply, errSilent
	}
	limited, cancel := context.WithTimeout(ctx, limitCold)
	defer cancel()
	req := client.ColdRequest{Head: client.Head{Version: client.APIVersion}, ID: id, After: after}
	err := c.client.Call(limited, client.MethodCold, req, &reply)
	if ctx.Err() != nil {
		return reply, context.Cause(ctx)
	}
	if c.note(err); client.CodeOf(err) == client.CodeUnavailable {
		return reply, errSilent
	}
	if err != nil {
		return reply, fmt.Errorf("records of %s after %d from a mirror: %w", id, after, err)
	}
	return reply, nil
}

// answers reports whether it is worth asking.
func (c *cold) answers() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().After(c.silent)
}

// note notes whether somebody answered, and says so once when nobody does.
func (c *cold) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answered := client.CodeOf(err) != client.CodeUnavailable
	switch first := c.silent.IsZero(); {
	case answered:
		c.silent = time.Time{}
		return
	case first:
		c.logger.Warn("no coordinator gives cold records: sessions are read from the stream until one does", slog.Any("error", err))
	}
	c.silent = time.Now().Add(limitSilent)
}
