package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/internal/delay"
)

// errNoAnswer is a read that nobody answered: the request or the answer was lost,
// the connection is down, or nobody leads.
var errNoAnswer = errors.New("no answer")

// codeNoCluster is the server's answer while a cluster has no leader of its own.
const codeNoCluster = jetstream.ErrorCode(10008)

// persist repeats a read that nobody answers, each time for [Config.Timeout] and
// for [Config.Budget] in all. One request could wait that long for an answer that
// was lost with a server, while another server has it.
func (l *Log) persist(ctx context.Context, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Budget)
	defer cancel()
	for {
		err := l.once(ctx, read)
		if !errors.Is(err, errNoAnswer) || !delay.For(ctx, jitter(firstPause/2, firstPause)) {
			return err
		}
	}
}

// once reads for [Config.Timeout].
func (l *Log) once(ctx context.Context, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	return read(ctx)
}

// unanswered marks the error of a request that another one may pass by.
func unanswered(err error) error {
	api, ok := apiError(err)
	for _, passes := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrReconnectBufExceeded, nats.ErrDisconnected, nats.ErrConnectionReconnecting,
	} {
		if errors.Is(err, passes) || ok && api.ErrorCode == codeNoCluster {
			return fmt.Errorf("%w: %w", errNoAnswer, err)
		}
	}
	return err
}
