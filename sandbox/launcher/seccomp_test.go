//go:build linux && (amd64 || arm64)

package main

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// sees runs a program as the kernel does on a call, given as the words of its
// seccomp_data: number, architecture, two of address, and two for each argument.
func (p program) sees(t *testing.T, call [16]uint32) (action uint32) {
	t.Helper()
	var acc uint32
	for at := 0; ; at++ {
		var yes bool
		switch in := p[at]; in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = call[in.K/4]
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= in.K
			continue
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		case unix.BPF_JMP | unix.BPF_JA:
			at += int(in.K)
			continue
		case jeq:
			yes = acc == in.K
		case jge:
			yes = acc >= in.K
		case jset:
			yes = acc&in.K != 0
		default:
			t.Fatalf("instruction %d has the unknown code %#x", at, in.Code)
		}
		if yes {
			at += int(p[at].Jt)
		} else {
			at += int(p[at].Jf)
		}
	}
}

// Every call there is ends as the lists say: what is found by halving is found, and
// nothing else.
func TestFilterSpeaksOfEveryCall(t *testing.T) {
	t.Parallel()
	const numbers = 700 // more than there are
	errno := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	byArgument := slices.Concat(signalCalls(), []uint32{
		unix.SYS_SOCKET, unix.SYS_CLONE, unix.SYS_UNSHARE, unix.SYS_PRLIMIT64, unix.SYS_IOCTL, unix.SYS_SOCKETPAIR, unix.SYS_OPENAT,
	})
	if old, there := archOpen(); there {
		byArgument = append(byArgument, old)
	}
	denied := 0
	for _, readOnly := range []bool{false, true} {
		for _, sockets := range []bool{false, true} {
			for _, helper := range []bool{false, true} {
				p := filter(readOnly, sockets, helper)
				for nr := range uint32(numbers) {
					if slices.Contains(byArgument, nr) {
						continue
					}
					want := uint32(unix.SECCOMP_RET_ALLOW)
					switch {
					case nr == unix.SYS_CLONE3 || nr == unix.SYS_OPENAT2:
						want = errno(unix.ENOSYS)
					case readOnly && slices.Contains(metadataCalls(), nr):
						want = errno(unix.EROFS)
					case slices.Contains(deniedCalls(), nr):
						want = errno(unix.EPERM)
					}
					if want != unix.SECCOMP_RET_ALLOW {
						denied++
					}
					if got := p.sees(t, [16]uint32{nr, auditArch}); got != want {
						t.Errorf("read-only %v, sockets %v, helper %v: call %d ends with %#x, want %#x", readOnly, sockets, helper, nr, got, want)
					}
					if got := p.sees(t, [16]uint32{nr | x32Bit, auditArch}); got != errno(unix.ENOSYS) {
						t.Errorf("call %d of x32 ends with %#x", nr, got)
					}
					if got := p.sees(t, [16]uint32{nr, auditArch ^ 1}); got != unix.SECCOMP_RET_KILL_PROCESS {
						t.Errorf("call %d of another architecture ends with %#x", nr, got)
					}
				}
			}
		}
	}
	if least := 8 * len(deniedCalls()); denied < least {
		t.Errorf("%d calls were denied, at least %d should be", denied, least)
	}
}
