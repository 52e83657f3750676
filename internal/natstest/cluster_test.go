package natstest_test

import (
	"bufio"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	logStream = "ENTAIL_LOG_0"
	subject   = "entail.log.0.r.s.inbox"
)

// provision makes a replicated log stream with the provisioner's rights.
func provision(t *testing.T, c *natstest.Cluster) nats.JetStreamContext {
	t.Helper()
	js, err := c.Conn(t, broker.Provisioner, "provisioner").JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{
		Name: logStream, Subjects: []string{"entail.log.0.>"}, Replicas: 3, AllowDirect: true,
	}); err != nil {
		t.Fatal(err)
	}
	return js
}

// store publishes until a majority has it.
func store(t *testing.T, nc *nats.Conn, text string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, err := nc.Request(subject, []byte(text), time.Second)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("store %q: %v", text, err)
		}
	}
}

// Three servers go on when one is cut off, hands over or is down, with what was
// stored before; that stream's tests of processes show the same of those.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := natstest.StartClusterConfig(t, natstest.ClusterConfig{Cuttable: true})
	js := provision(t, c)
	nc := c.Conn(t, broker.Coordinator, "coordinator")
	store(t, nc, "before")
	first := c.Leader(t, logStream)
	alone := c.ConnTo(t, first, broker.Coordinator, "coordinator")
	c.Isolate(t, first)
	if _, err := alone.Request(subject, []byte("alone"), 300*time.Millisecond); err == nil {
		t.Error("a server that reaches no other acknowledged a record")
	}
	c.Heal(first)
	store(t, alone, "healed")
	before := c.Leader(t, logStream)
	c.StepDown(t, logStream)
	if c.Leader(t, logStream) == before {
		t.Errorf("server %d leads still", before)
	}
	down := c.Leader(t, logStream)
	c.Stop(t, down)
	store(t, nc, "without one")
	if i := c.Leader(t, logStream); i == down {
		t.Errorf("server %d leads, which is down", i)
	}
	c.Start(t, down)
	store(t, c.ConnTo(t, down, broker.Coordinator, "coordinator"), "with it")
	info, err := js.StreamInfo(logStream)
	if err != nil || info.State.Msgs < 4 || info.Config.Replicas != natstest.Nodes {
		t.Errorf("the stream: %+v, %v; want the four of this test in three replicas", info, err)
	}
}

// echo answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-ended })
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					if _, err := c.Write(append(lines.Bytes(), '\n')); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestProxy(t *testing.T) {
	t.Parallel()
	const long = 10 * time.Second
	p := natstest.StartProxy(t, echo(t))
	dial := func() *bufio.ReadWriter {
		c, err := net.Dial("tcp", p.URL()[len("nats://"):])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return bufio.NewReadWriter(bufio.NewReader(deadline{c, long}), bufio.NewWriter(c))
	}
	say := func(rw *bufio.ReadWriter, line string) {
		t.Helper()
		if _, err := rw.WriteString(line + "\n"); err != nil {
			t.Fatal(err)
		}
		if err := rw.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	// caught waits until what was said is held or lost.
	caught := func() {
		t.Helper()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(long); p.Caught(natstest.ToServer)+p.Caught(natstest.ToClient) == 0; <-tick.C {
			if time.Now().After(end) {
				t.Fatal("nothing was caught")
			}
		}
	}
	// hear returns the next line, or none when the connection ends.
	hear := func(rw *bufio.ReadWriter) string {
		line, _ := rw.ReadString('\n')
		return line
	}
	rw := dial()
	say(rw, "a")
	if got := hear(rw); got != "a\n" {
		t.Errorf("heard %q, want a", got)
	}
	for name, ways := range map[string][]natstest.Way{
		"both": nil, "to the server": {natstest.ToServer}, "to the client": {natstest.ToClient},
	} {
		rw := dial()
		p.Hold(ways...)
		say(rw, name)
		caught()
		p.Open()
		if line := hear(rw); line != name+"\n" {
			t.Errorf("%s held, then opened: heard %q", name, line)
		}
		lossy := dial()
		say(lossy, "known")
		hear(lossy)
		p.Drop(ways...)
		say(lossy, name)
		caught()
		p.Open()
		if line := hear(lossy); line != "" {
			t.Errorf("%s dropped, then opened: heard %q, want the connection ended", name, line)
		}
		again := dial()
		say(again, "again")
		if line := hear(again); line != "again\n" {
			t.Errorf("after %s: heard %q on a new connection", name, line)
		}
	}
	p.Cut()
	if got := hear(rw); got != "" {
		t.Errorf("heard %q on a connection that was cut", got)
	}
}

// deadline bounds each read.
type deadline struct {
	net.Conn
	d time.Duration
}

// Read implements net.Conn.
func (d deadline) Read(b []byte) (int, error) {
	if err := d.SetReadDeadline(time.Now().Add(d.d)); err != nil {
		return 0, err
	}
	return d.Conn.Read(b)
}
