package natstest

import (
	"net"
	"strings"
	"sync"
	"testing"
)

// Way is a direction through a [Proxy].
type Way int

// The two directions.
const (
	ToServer Way = iota
	ToClient
)

// Proxy is a TCP relay in front of one server that can hold back or lose what
// goes one way or both. It stands in for the network between two machines, so
// connections stay open while nothing gets through.
type Proxy struct {
	listener net.Listener
	target   string
	done     sync.WaitGroup

	mu    sync.Mutex
	ways  [2]gate            // guarded by mu, indexed by Way
	links map[*link]struct{} // guarded by mu, nil once closed
}

// gate is what happens to the bytes of one direction.
type gate struct {
	shut   bool
	lose   bool          // while shut: what comes is lost, not kept
	caught int           // bytes that came while shut
	open   chan struct{} // closed when it opens; set while shut
}

// link is one relayed connection.
type link struct {
	client, server net.Conn
	lost           bool // guarded by Proxy.mu: a part of its bytes is missing
	ended          chan struct{}
}

// StartProxy relays to a server's address, which may be a URL, until the test ends.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		t.Fatalf("start a proxy to %s: %v", target, err)
	}
	p := &Proxy{listener: listener, target: strings.TrimPrefix(target, "nats://"), links: map[*link]struct{}{}}
	p.done.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URL is where clients connect to. Give them nats.IgnoreDiscoveredServers, or they
// find the way around the proxy.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Hold keeps back what goes these ways, both when none is named, until Open.
func (p *Proxy) Hold(ways ...Way) { p.shut(false, ways) }

// Drop loses what goes these ways, both when none is named, until Open. A
// connection that has lost bytes ends then, because TCP has no holes.
func (p *Proxy) Drop(ways ...Way) { p.shut(true, ways) }

func (p *Proxy) shut(lose bool, ways []Way) {
	if len(ways) == 0 {
		ways = []Way{ToServer, ToClient}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range ways {
		if g := &p.ways[w]; g.shut {
			close(g.open) // whoever waits there looks again
		}
		p.ways[w] = gate{shut: true, lose: lose, open: make(chan struct{})}
	}
}

// Open lets everything through again, first of all what was held.
func (p *Proxy) Open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.ways {
		if g := &p.ways[w]; g.shut {
			close(g.open)
		}
		p.ways[w] = gate{}
	}
	for l := range p.links {
		if l.lost {
			l.close()
		}
	}
}

// Caught counts the bytes that were held or lost in a direction since it was shut.
func (p *Proxy) Caught(w Way) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ways[w].caught
}

// Cut ends every connection there is.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for l := range p.links {
		l.close()
	}
	p.links = nil
	p.mu.Unlock()
	p.done.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.done.Go(func() { p.relay(client) })
	}
}

func (p *Proxy) relay(client net.Conn) {
	server, err := net.Dial("tcp", p.target) //nolint:noctx // on this machine: answered at once
	if err != nil {
		_ = client.Close() // the server is down, and so it looks
		return
	}
	l := &link{client: client, server: server, ended: make(chan struct{})}
	p.mu.Lock()
	open := p.links != nil
	if open {
		p.links[l] = struct{}{}
	}
	p.mu.Unlock()
	if open {
		var both sync.WaitGroup
		both.Go(func() { p.pump(l, ToServer, server, client) })
		both.Go(func() { p.pump(l, ToClient, client, server) })
		both.Wait()
	}
	p.mu.Lock()
	delete(p.links, l)
	l.close()
	p.mu.Unlock()
}

// pump moves the bytes of one direction, and ends the link with them.
func (p *Proxy) pump(l *link, w Way, to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && p.pass(l, w, n) {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	p.mu.Lock()
	l.close()
	p.mu.Unlock()
}

// pass waits until n bytes may go on and reports whether they may at all.
func (p *Proxy) pass(l *link, w Way, n int) bool {
	for {
		p.mu.Lock()
		g := p.ways[w]
		l.lost = l.lost || g.lose
		if g.shut {
			p.ways[w].caught += n
		}
		p.mu.Unlock()
		switch {
		case g.lose:
			return false
		case !g.shut:
			return true
		}
		select {
		case <-g.open:
		case <-l.ended:
			return false
		}
	}
}

// close needs Proxy.mu.
func (l *link) close() {
	select {
	case <-l.ended:
	default:
		close(l.ended)
		_ = l.client.Close()
		_ = l.server.Close()
	}
}
