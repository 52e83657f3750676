package broker

import (
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
func (l *serverLog) Noticef(format string, v ...any) { l.to.Debug(message, said(format, v)) }

// Warnf logs a warning.
func (l *serverLog) Warnf(format string, v ...any) { l.to.Warn(message, said(format, v)) }

// Errorf logs an error.
func (l *serverLog) Errorf(format string, v ...any) { l.to.Error(message, said(format, v)) }

// Debugf logs at debug.
func (l *serverLog) Debugf(format string, v ...any) { l.to.Debug(message, said(format, v)) }

// Tracef drops traces, which hold payloads.
func (l *serverLog) Tracef(string, ...any) {}

// Fatalf logs an error and keeps the first one for Start.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.to.Error(message, said(format, v))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.died == nil {
		l.died = fmt.Errorf(format, v...)
	}
}

// message is the same for all the server says, so that it can be searched for.
const message = "nats-server"

func said(format string, v []any) slog.Attr { return slog.String("said", fmt.Sprintf(format, v...)) }
