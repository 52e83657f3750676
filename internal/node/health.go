package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/entail-fleet/entail/sandbox"
)

// Health is what a process says of itself on /readyz. It holds no secret, and
// nothing can be changed there: calls that are confined may come to it.
type Health struct {
	Kind        string `json:"kind"` // worker or coordinator
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	Ready       bool   `json:"ready"`
	Why         string `json:"why,omitempty"` // it is not
	Broker      bool   `json:"brokerConnected"`
	// Revision is that of the settings that the process goes by.
	Revision uint64 `json:"settingsRevision"`
	// Sandbox is what a worker holds calls by.
	Sandbox *sandbox.Report `json:"sandbox,omitempty"`
	// Partitions and Durability are a coordinator's.
	Partitions []PartitionHealth `json:"partitions,omitempty"`
	Durability string            `json:"durability,omitempty"`
}

// PartitionHealth is how far a partition is mirrored, and why it is not any more.
type PartitionHealth struct {
	Partition int    `json:"partition"`
	Mirrored  uint64 `json:"mirrored"` // the last stream sequence
	Stopped   string `json:"stopped,omitempty"`
}

// judge says whether a process is ready, and if not why.
func (h *Health) judge(ctx context.Context, started, confirmed bool) {
	switch {
	case ctx.Err() != nil:
		h.Why = "it is stopping"
	case !h.Broker:
		h.Why = "the broker is not connected"
	case !started:
		h.Why = "it is starting"
	case !confirmed:
		h.Why = "the settings were not confirmed for a lease: nothing is decided"
	default:
		h.Ready = true
	}
}

// CheckHTTP holds an address for /readyz to its form.
func CheckHTTP(addr string) error {
	if addr == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("-http %.60q: give HOST:PORT, such as 127.0.0.1:8080; without a host it is the loopback interface", addr)
	}
	return nil
}

// listenHTTP listens where /readyz is served. An address without a host is of the
// loopback interface: who wants all of them says so.
func listenHTTP(ctx context.Context, addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address for /readyz: %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("address for /readyz: %w; give another with -http", err)
	}
	return l, nil
}

// serveHealth serves /livez and /readyz on addr, if there is one, until the returned
// function is called.
func serveHealth(ctx context.Context, addr string, log *slog.Logger, health func() Health) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	l, err := listenHTTP(ctx, addr)
	if err != nil {
		return nil, err
	}
	log.Info("serves /readyz and /livez", slog.String("address", l.Addr().String()))
	const patience = 5 * time.Second
	srv := &http.Server{
		Handler: healthHandler(health), ReadTimeout: patience, WriteTimeout: 2 * patience, IdleTimeout: patience, MaxHeaderBytes: 8 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("/readyz is no longer served", slog.Any("error", err))
		}
	}()
	return func() {
		_ = srv.Close() // whoever asks is asking a process that ends
		<-done
	}, nil
}

func healthHandler(health func() Health) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]bool{"live": true})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		h, status := health(), http.StatusOK
		if !h.Ready {
			status = http.StatusServiceUnavailable
		}
		answer(w, status, h)
	})
	return mux
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who asked may be gone
}
