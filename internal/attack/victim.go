//go:build linux && (amd64 || arm64)

package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// segmentSize is a page.
const segmentSize = 4096

// Victim is a process outside of the call, until its input ends. It writes the
// target back with what it adds: where its servers listen and where its secret is.
// Whoever starts it gives it Outside as its directory and sets the paths of its
// sockets.
func Victim(t *Target, in io.Reader, out io.Writer) error {
	unix.Umask(0)
	ignored := make(chan os.Signal, 16)
	signal.Notify(ignored, unix.SIGUSR1, unix.SIGIO)
	secret := []byte(t.Witness)
	t.Victim, t.Address = os.Getpid(), addressOf(secret)
	if err := hold(t); err != nil {
		return err
	}
	id, err := unix.SysvShmGet(t.Segment, segmentSize, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		return fmt.Errorf("make shared memory: %w", err)
	}
	defer func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) }()
	if err := serve(t); err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(t); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	runtime.KeepAlive(secret)
	return err
}

// hold opens a file for HeldWrite.
func hold(t *Target) error {
	fd, err := unix.Open(filepath.Join(t.Outside, HeldWrite, File), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Dup3(fd, VictimFD, unix.O_CLOEXEC), unix.Close(fd))
}

// serve starts the servers. They end with the process.
func serve(t *Target) error {
	for _, s := range []struct {
		network string
		address *string
		answer  func(net.Conn)
	}{
		{"tcp4", &t.TCP, hear},
		{"unix", &t.Stream, hear},
		{"unix", &t.Abstract, hear},
		{"unix", &t.Rights, handOut(t)},
	} {
		address := *s.address
		if address == "" {
			address = "127.0.0.1:0"
		}
		l, err := net.Listen(s.network, address) //nolint:noctx // at once
		if err != nil {
			return err
		}
		*s.address = l.Addr().String()
		go accept(l, s.answer)
	}
	datagrams, err := net.ListenPacket("unixgram", t.Datagram) //nolint:noctx // at once
	if err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp4", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		return err
	}
	t.UDP = packets.LocalAddr().String()
	go drain(datagrams)
	go drain(packets)
	return nil
}

func accept(l net.Listener, answer func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			answer(conn)
			_ = conn.Close()
		}()
	}
}

func hear(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func drain(c net.PacketConn) {
	for buf := make([]byte, 16); ; {
		if _, _, err := c.ReadFrom(buf); err != nil {
			return
		}
	}
}

// handOut gives whoever asks an open file.
func handOut(t *Target) func(net.Conn) {
	return func(conn net.Conn) {
		c, ok := conn.(*net.UnixConn)
		if !ok {
			return
		}
		fd, err := unix.Open(filepath.Join(t.Outside, RightsWrite, File), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		_, _, _ = c.WriteMsgUnix([]byte("x"), unix.UnixRights(fd), nil)
		_ = unix.Close(fd)
	}
}
