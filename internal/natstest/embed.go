package natstest

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// embedded is a server of a cluster in this process.
type embedded struct{ server *server.Server }

// embed starts a server in this process.
func embed(n *node) (running, error) {
	opts, err := server.ProcessConfigFile(filepath.Join(n.dir, "nats.conf"))
	if err != nil {
		return nil, err
	}
	opts.NoSigs = true
	opts.DisableJetStreamBanner = true
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	said := &last{}
	ns.SetLoggerV2(said, false, false, false)
	ns.Start()
	if !ns.ReadyForConnections(patience / 2) {
		e := embedded{ns}
		_ = e.stop() // it never ran
		return nil, fmt.Errorf("it did not come up; it said: %s", said)
	}
	return embedded{ns}, nil
}

func (e embedded) stop() error {
	e.server.Shutdown()
	e.server.WaitForShutdown()
	return nil
}

// kill is stop: what runs in this process cannot be killed without it.
func (e embedded) kill() error { return e.stop() }

// last returns where this server's copy of a stream ends.
func (e embedded) last(account, stream string) (uint64, error) {
	detail, err := e.server.JszAccount(&server.JSzOptions{Account: account, Streams: true})
	if err != nil {
		return 0, err
	}
	for _, s := range detail.Streams {
		if s.Name == stream {
			return s.State.LastSeq, nil
		}
	}
	return 0, fmt.Errorf("it has no stream %s", stream)
}

// last keeps the errors a server says, for when it does not come up.
type last struct {
	mu   sync.Mutex
	text []string // guarded by mu
}

const lastKept = 10

// Errorf keeps a line.
func (l *last) Errorf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text = append(l.text, fmt.Sprintf(format, v...)); len(l.text) > lastKept {
		l.text = l.text[1:]
	}
}

// Fatalf keeps a line: the library ends the process only through its own logger.
func (l *last) Fatalf(format string, v ...any) { l.Errorf(format, v...) }

// Noticef drops a line.
func (l *last) Noticef(string, ...any) {}

// Warnf drops a line.
func (l *last) Warnf(string, ...any) {}

// Debugf drops a line.
func (l *last) Debugf(string, ...any) {}

// Tracef drops a line.
func (l *last) Tracef(string, ...any) {}

// String returns what was kept.
func (l *last) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.text, "; ")
}
