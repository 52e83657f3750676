//go:build linux && (amd64 || arm64)

package attack

import (
	"errors"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// socketAttempts reach out of the call.
func socketAttempts() []Attempt {
	return []Attempt{
		{"net/tcp", func(t *Target) error { return dial("tcp", t.TCP) }},
		{"net/multipath-tcp", func(t *Target) error { return connectTo(t.TCP, unix.IPPROTO_MPTCP) }},
		{"net/tcp-fast-open", fastOpen},
		{"net/tcp-to-self", tcpToSelf},
		{"net/tcp6-to-self", func(*Target) error { return serveSelf("tcp6", "[::1]:0") }},
		{"net/udp", func(t *Target) error { return dial("udp", t.UDP) }},
		{"net/raw", makeSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)},
		{"net/packet", makeSocket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)},
		{"net/netlink", makeSocket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)},
		{"net/vsock", makeSocket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)},
		{"net/kernel-crypto", makeSocket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0)},
		{"net/unix-stream", func(t *Target) error { return dial("unix", t.Stream) }},
		{"net/unix-datagram", func(t *Target) error { return dial("unixgram", t.Datagram) }},
		{"net/unix-datagram-by-pair", sendByPair},
		{"net/unix-abstract", func(t *Target) error { return dial("unix", t.Abstract) }},
		{"net/unix-to-self", func(t *Target) error { return serveSelf("unix", t.in("new")) }},
		{RightsWrite, takeAndWrite},
	}
}

// connect is bounded by the end of the process, as all that an attempt does.
func connect(network, address string) (net.Conn, error) {
	return net.Dial(network, address) //nolint:noctx // see above
}

func dial(network, address string) error {
	conn, err := connect(network, address)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte("x"))
	return errors.Join(err, conn.Close())
}

func makeSocket(domain, kind, protocol int) func(*Target) error {
	return func(*Target) error {
		fd, err := unix.Socket(domain, kind, protocol)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}

// socketAddress is address for the raw calls.
func socketAddress(address string) (unix.Sockaddr, error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}, nil
}

func connectTo(address string, protocol int) error {
	sa, err := socketAddress(address)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, protocol)
	if err != nil {
		return err
	}
	return errors.Join(unix.Connect(fd, sa), unix.Close(fd))
}

// fastOpen connects by sending, past a fence that looks at connect alone.
func fastOpen(t *Target) error {
	sa, err := socketAddress(t.TCP)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, sa), unix.Close(fd))
}

func tcpToSelf(*Target) error { return serveSelf("tcp4", "127.0.0.1:0") }

// serveSelf listens and connects to that.
func serveSelf(network, address string) error {
	l, err := net.Listen(network, address) //nolint:noctx // at once
	if err != nil {
		return err
	}
	return errors.Join(dial(network, l.Addr().String()), l.Close())
}

// sendByPair uses a pair of datagram sockets, made without socket(2), to send to a
// named one.
func sendByPair(t *Target) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	return unix.Sendto(pair[0], []byte("x"), 0, &unix.SockaddrUnix{Name: t.Datagram})
}

// takeAndWrite is handed an open file by a server outside.
func takeAndWrite(t *Target) error {
	conn, err := connect("unix", t.Rights)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return errNothing
	}
	oob := make([]byte, 64)
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return errors.Join(errNothing, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return errors.Join(errNothing, err)
	}
	_, err = unix.Write(fds[0], []byte("x"))
	return err
}

// talkOverPair is how programs talk to their children.
func talkOverPair(*Target) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := unix.Sendto(pair[0], []byte("x"), 0, nil); err != nil {
		return err
	}
	f := os.NewFile(uintptr(pair[1]), "pair")
	_, err = f.Read(make([]byte, 1))
	return errors.Join(err, f.Close())
}
