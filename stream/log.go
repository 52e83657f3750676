package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
)

// Config says how a deployment's logs are kept and how patient this process is.
type Config struct {
	// Partitions is the deployment's partition count. Default 1.
	Partitions int
	// Replicas is the number of copies of each stream. Default 1.
	Replicas int
	// MaxBytes is the room of each partition's stream. Default 1 GiB.
	MaxBytes int64
	// Witness confirms that a session's own space is empty. Without one no
	// append at tail 0 is possible.
	Witness Witness
	// Timeout is how long one try waits for the server's answer. Default 2s.
	Timeout time.Duration
	// Budget is how long an append whose outcome is unknown is resent. Losing a
	// leader stalls a stream for 4 to 9 s. Default 15s.
	Budget time.Duration
	// Poll is how often watches of settings and liveness look. Default 1s.
	Poll time.Duration
	// Silence is how long a delivery or the work queue may give no sign before it is
	// asked for again; at least 1s. Default 2s.
	Silence time.Duration
	// Writer is what records say of who wrote them.
	Writer session.Writer
	// Logger receives a warning for each delivery that fell silent. Default nowhere.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Partitions == 0 {
		c.Partitions = 1
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 1 << 30
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Second
	}
	if c.Budget == 0 {
		c.Budget = 15 * time.Second
	}
	if c.Poll == 0 {
		c.Poll = time.Second
	}
	if c.Silence == 0 {
		c.Silence = 2 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports the first field that cannot be worked with.
func (c Config) Validate() error {
	switch {
	case c.Partitions < 0 || c.Partitions > 256:
		return fmt.Errorf("partition count %d is not in 1..256", c.Partitions)
	case c.Replicas < 0 || c.Replicas == 2 || c.Replicas > 5:
		return fmt.Errorf("replica count %d: use 1, 3, 4 or 5", c.Replicas)
	case c.MaxBytes < 0:
		return fmt.Errorf("max bytes %d is negative", c.MaxBytes)
	case c.Timeout < 0 || c.Budget < 0 || c.Poll < 0:
		return fmt.Errorf("timeout %v, budget %v and poll %v cannot be negative", c.Timeout, c.Budget, c.Poll)
	case c.Silence != 0 && c.Silence < time.Second:
		return fmt.Errorf("silence %v is below the 1s that the server's signs need", c.Silence)
	}
	return nil
}

// Viewer folds sessions for the one append. Least is a stream sequence that the
// view must be at least as new as. A session without a genesis is
// [session.ErrNotFound].
type Viewer interface {
	View(ctx context.Context, id session.ID, least uint64) (session.View, error)
}

// Witness is a full mirror's word on a session whose own space reads as empty
// (ARCHITECTURE 2): a leader with one damaged block shows a full session as
// empty and lets "expected 0" through. Empty returns nil only if the mirror has
// read past the stream sequence past, zero meaning past the session's genesis,
// and holds no record of the session's own space.
type Witness interface {
	Empty(ctx context.Context, id session.ID, past uint64) error
}

// Log is every session log of a deployment. It is safe for use by any number of
// goroutines, and does not own the connection.
type Log struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	cfg   Config
	pub   publisher
	lanes lanes
	tails tails

	beliefs beliefs
}

// New returns the logs behind a connection. It asks the server nothing.
func New(nc *nats.Conn, cfg Config) (*Log, error) {
	if nc == nil {
		return nil, errors.New("stream: no connection given")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	return &Log{nc: nc, js: js, cfg: cfg.withDefaults(), pub: server{nc, cfg.withDefaults().Timeout}}, nil
}

// partition refuses an id that lives in no partition of the deployment.
func (l *Log) partition(id session.ID) (int, error) {
	if _, err := session.ParseID(string(id)); err != nil {
		return 0, err
	}
	p := id.Partition()
	if p >= l.cfg.Partitions {
		return 0, fmt.Errorf("session %s is of partition %d, the deployment has %d: %w", id, p, l.cfg.Partitions, session.ErrNotFound)
	}
	return p, nil
}
