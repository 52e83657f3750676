package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

var _ server.Logger = (*serverLog)(nil)

// serverLog sends what the server says to slog. It keeps a fatal message: the
// library reports a failed start in no other way.
type serverLog struct {
	to *slog.Logger

	mu sync.Mutex // guards died
	// died is the first fatal message.
	died error
}

// fatal returns the first fatal message as an error.
func (l *serverLog) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.died
}

// Noticef logs at debug: the server's notices are about itself.
func (l *serverLog) Noticef(format string, v ...any) { l.to.Debug(text(format, v)) }

// Warnf logs a warning.
func (l *serverLog) Warnf(format string, v ...any) { l.to.Warn(text(format, v)) }

// Errorf logs an error.
func (l *serverLog) Errorf(format string, v ...any) { l.to.Error(text(format, v)) }

// Debugf logs at debug.
func (l *serverLog) Debugf(format string, v ...any) { l.to.Debug(text(format, v)) }

// Tracef drops traces, which hold payloads.
func (l *serverLog) Tracef(string, ...any) {}

// Fatalf logs an error and keeps the first one for Start.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.to.Error(text(format, v))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.died == nil {
		l.died = errors.New(text(format, v))
	}
}

func text(format string, v []any) string { return "nats-server: " + fmt.Sprintf(format, v...) }
