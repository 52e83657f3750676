package scale_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// partEnv makes this binary a part of a deployment.
const partEnv = "ENTAIL_SCALE_PART"

func TestMain(m *testing.M) {
	if role := os.Getenv(partEnv); role != "" {
		if err := bePart(context.Background(), role, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// order is what a part is told. It is written on its standard input; every later
// line asks for figures, and the end of the input ends the part.
type order struct {
	Dir        string // of the part itself
	Keys       string // where the credentials are
	Partitions int
	Lease      time.Duration
	Slots      int // sessions that a worker drives at once
	Processors int // 0 is all there are
}

// figures are what a part is like at a moment.
type figures struct {
	Heap       uint64 // in use after a collection
	RSS        uint64
	Mallocs    uint64 // objects allocated so far
	Goroutines int
	Sent       uint64 // messages on its connection so far
	Received   uint64
	Published  uint64        // records that it sent so far, stored or not
	Took       time.Duration // to get ready
	CPU        time.Duration // of all processors so far
}

// measure takes the figures of this process.
func measure(nc *nats.Conn, sent *published, took time.Duration) figures {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f := figures{Mallocs: m.Mallocs, Goroutines: runtime.NumGoroutine(), Published: sent.n.Load(), Took: took}
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
		f.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	if nc != nil {
		s := nc.Stats()
		f.Sent, f.Received = s.OutMsgs, s.InMsgs
	}
	runtime.GC()
	runtime.GC() // what the first one left to finalizers
	runtime.ReadMemStats(&m)
	f.Heap = m.HeapAlloc
	if statm, err := os.ReadFile("/proc/self/statm"); err == nil {
		pages, _ := strconv.ParseUint(strings.Fields(string(statm))[1], 10, 64)
		f.RSS = pages * uint64(os.Getpagesize())
	}
	return f
}

// bePart is the life of a part.
func bePart(ctx context.Context, role string, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return errors.New("no order")
	}
	var o order
	if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
		return err
	}
	if o.Processors > 0 {
		runtime.GOMAXPROCS(o.Processors)
	}
	start := time.Now()
	begin := map[string]func(context.Context, order, ...nats.Option) (*nats.Conn, func() error, error){
		"broker": beBroker, "coordinator": beCoordinator, "worker": beWorker,
	}[role]
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := make(chan struct{}) // sent for each line, closed at their end
	go func() {
		defer close(asked)
		defer cancel() // also while it begins
		for lines.Scan() {
			asked <- struct{}{}
		}
	}()
	var sent published
	nc, end, err := begin(ctx, o, nats.SetCustomDialer(&sent))
	if err != nil {
		return err
	}
	took := time.Since(start)
	enc := json.NewEncoder(out)
	for ok := true; ok; _, ok = <-asked {
		if err := enc.Encode(measure(nc, &sent, took)); err != nil {
			return err
		}
	}
	return end()
}

func beBroker(ctx context.Context, o order, _ ...nats.Option) (*nats.Conn, func() error, error) {
	ids, err := broker.NewIdentities("w1")
	if err != nil {
		return nil, nil, err
	}
	s, err := broker.Start(ctx, broker.Config{Dir: o.Dir, Partitions: o.Partitions, MaxStore: 64 << 30}, ids)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		creds, _ := s.Credentials(id.Role, id.Name)
		var text strings.Builder
		if err := broker.WriteCredentials(&text, creds); err != nil {
			return nil, nil, err
		}
		if err := os.WriteFile(filepath.Join(o.Keys, id.Name), []byte(text.String()), 0o600); err != nil {
			return nil, nil, err
		}
	}
	return nil, s.Close, nil
}

// published counts the records that a connection has sent, stored or not.
type published struct {
	n    atomic.Uint64
	mu   sync.Mutex
	part []byte // the end of what was written last; guarded by mu
}

// recordSent begins what a client writes to publish a record: every record has
// headers.
var recordSent = []byte("HPUB entail.log.")

// Dial implements nats.CustomDialer.
func (p *published) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	return counted{c, p}, err
}

// counted is a connection whose records are counted.
type counted struct {
	net.Conn
	to *published
}

// Write implements net.Conn. What is looked for may come in two parts.
func (c counted) Write(b []byte) (int, error) {
	c.to.mu.Lock()
	all := slices.Concat(c.to.part, b)
	c.to.n.Add(uint64(bytes.Count(all, recordSent)))
	c.to.part = bytes.Clone(all[max(0, len(all)-len(recordSent)+1):])
	c.to.mu.Unlock()
	return c.Conn.Write(b)
}

// connect connects as an identity of the broker whose keys are in a directory.
func connect(keys, name string, opts ...nats.Option) (*nats.Conn, error) {
	f, err := os.Open(filepath.Join(keys, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	creds, err := broker.ReadCredentials(f)
	if err != nil {
		return nil, err
	}
	return nats.Connect(creds[0].URL, append(creds[0].Options(), opts...)...)
}

const token = "ada-token"

func beCoordinator(ctx context.Context, o order, opts ...nats.Option) (*nats.Conn, func() error, error) {
	store, err := sessionstore.Open(sessionstore.Config{Dir: o.Dir})
	if err != nil {
		return nil, nil, err
	}
	nc, err := connect(o.Keys, "coordinator", opts...)
	if err != nil {
		return nil, nil, err
	}
	log, err := stream.New(nc, stream.Config{
		Partitions: o.Partitions, Witness: store, Poll: 100 * time.Millisecond, Timeout: 10 * time.Second,
		Writer: session.Writer{Component: "coordinator", Instance: "c", Incarnation: "1"},
	})
	if err != nil {
		return nil, nil, err
	}
	c, err := coordinator.New(coordinator.Config{
		Name: "c", Conn: nc, Log: log, Store: store, Partitions: o.Partitions, Tools: agent.Tools(),
		Tokens: []coordinator.Token{{
			Digest: coordinator.DigestToken(token), Role: coordinator.Admin, Party: session.Party{Kind: session.Person, ID: "ada"},
		}},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	end := func() error {
		err := <-ended
		nc.Close()
		return errors.Join(err, store.Close())
	}
	select {
	case <-c.Ready():
		return nc, end, nil
	case err := <-ended:
		return nil, nil, errors.Join(errors.New("it ended before it was ready"), err)
	}
}

func beWorker(ctx context.Context, o order, opts ...nats.Option) (*nats.Conn, func() error, error) {
	nc, err := connect(o.Keys, "w1", opts...)
	if err != nil {
		return nil, nil, err
	}
	api := client.New(nc, client.Config{Worker: "w1"})
	log, err := stream.New(nc, stream.Config{
		Partitions: o.Partitions, Witness: agent.Witness{Client: api}, Timeout: 10 * time.Second,
		Writer: session.Writer{Component: "worker", Instance: "w1", Incarnation: "1"},
	})
	if err != nil {
		return nil, nil, err
	}
	runner, err := sandbox.New(sandbox.Config{})
	if err != nil {
		return nil, nil, err
	}
	w, err := agent.NewWorker(agent.Config{
		Name: "w1", Incarnation: "1", Concurrency: o.Slots, Partitions: o.Partitions, Lease: o.Lease, Log: log, Client: api, Runner: runner,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return nc, func() error {
		err := <-ended
		nc.Close()
		return err
	}, nil
}

// part is a process of a deployment.
type part struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	read io.Closer
	done bool
	// ready are the figures when it was ready.
	ready figures
}

// start starts a part and returns when it is ready. It ends with the test.
func start(t testing.TB, role string, o order) *part {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Env = append(cmd.Environ(), partEnv+"="+role)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", role, err)
	}
	p := &part{t: t, cmd: cmd, in: in, out: json.NewDecoder(out), read: out}
	t.Cleanup(p.stop)
	if err := json.NewEncoder(in).Encode(o); err != nil {
		t.Fatalf("start %s: %v", role, err)
	}
	if err := p.out.Decode(&p.ready); err != nil {
		t.Fatalf("%s does not get ready: %v", role, err)
	}
	return p
}

// figures asks for the figures of now.
func (p *part) figures() figures {
	p.t.Helper()
	var f figures
	_, err := p.in.Write([]byte("\n"))
	if err == nil {
		err = p.out.Decode(&f)
	}
	if err != nil {
		p.t.Fatalf("figures: %v", err)
	}
	return f
}

// stop ends the part as its deployment would, and returns when it has ended.
func (p *part) stop() {
	if p.done {
		return
	}
	p.done = true
	p.signal(syscall.SIGCONT)
	if err := p.in.Close(); err != nil {
		p.t.Errorf("stop: %v", err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("a part of the deployment: %v", err)
	}
}

// without runs fn while the part stands still.
func (p *part) without(fn func()) {
	p.signal(syscall.SIGSTOP)
	defer p.signal(syscall.SIGCONT)
	fn()
}

func (p *part) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("%v to a part of the deployment: %v", s, err)
	}
}
