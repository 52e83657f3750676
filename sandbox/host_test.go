//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/attack"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// hostName is what the tests run on. What a host must have is said and not found out:
// a tier that is missing would otherwise be a test that passes.
var hostName = flag.String("host", "machine", "what the tests run on: "+strings.Join(slices.Sorted(maps.Keys(hosts())), ", "))

// host is what this suite has to know of what it runs on.
type host struct {
	// namespaces says that mounts of one's own can be had, if need be in a user
	// namespace.
	namespaces bool
	// users says that ordinary users can have them, too. A user namespace may mount
	// /proc only where no part of it is covered.
	users bool
	// refuses names the attempts of package attack that can fail here whatever holds
	// them: they do not show that the fence is what stops them.
	refuses []string
}

// hosts are the places that internal/confined starts this suite in.
func hosts() map[string]host {
	return map[string]host{
		"machine":         {namespaces: true, users: true},
		"docker":          {refuses: append(dockerRefuses(), namespaceAttempts()...)},
		"docker-sysadmin": {namespaces: true, refuses: dockerRefuses()},
	}
}

// dockerRefuses are those that take a capability that Docker gives to nobody here, that
// its profile refuses to everybody, or that its read-only mounts and devices do.
func dockerRefuses() []string {
	return []string{
		"fs/open-by-handle", "proc/take-descriptor", "launcher/take-descriptor", "ipc/add-key",
		"kern/ring", "kern/ring-open-and-write", "kern/ring-socket", "kern/load-program", "kern/count-events",
		"kern/account-processes", "kern/read-log", "kern/handle-page-faults", "kern/watch-file-systems",
		"meta/set-flags-by-name", "net/vsock", "net/kernel-crypto", "net/tcp6-to-self",
		"read/shadow",               // is not there
		"dev/make-character-device", // over fuse-overlayfs, which holds none
		"proc/read-memory",          // by an older profile
		"dev/make-block-device", "dev/open-kernel-log", "dev/open-sysctl", "dev/open-cgroup", "arch/reach-ports",
	}
}

// namespaceAttempts are those that take CAP_SYS_ADMIN or a new namespace.
func namespaceAttempts() []string {
	return []string{
		"ns/mount", "ns/mount-outside-in", "ns/remount-writable", "ns/open-file-system", "ns/clone-tree",
		"ns/unshare-mounts", "ns/clone-user-and-write", "ns/join-victims-mounts", "kern/set-host-name",
	}
}

// here is the host that the flag names.
func here(t *testing.T) host {
	t.Helper()
	h, known := hosts()[*hostName]
	if !known {
		t.Fatalf("-host=%s is none of %v", *hostName, slices.Sorted(maps.Keys(hosts())))
	}
	born, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if born != 0 {
		h.refuses = append(h.refuses, attack.RunAsRoot)
	}
	return h
}

// tiers lists what must be to be had here, from the strongest.
func (h host) tiers() []session.Tier {
	var tiers []session.Tier
	if h.namespaces {
		tiers = append(tiers, session.TierNamespaces)
	}
	if os.Getuid() == 0 {
		tiers = append(tiers, session.TierUID)
	}
	return append(tiers, session.TierLandlock)
}

// best is the strongest tier to be had here that is no stronger than t.
func (h host) best(t session.Tier) session.Tier {
	for _, tier := range h.tiers() {
		if !t.Weaker(tier) {
			return tier
		}
	}
	return session.TierNone
}

// TestTiersOfTheHost compares what the host must have with what can be had, and with
// what is said of it. Only mounts of its own hide what lies inside the workspace. What
// root has besides is TestTiersSayWhatTheyAre's.
func TestTiersOfTheHost(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	data := filepath.Join(root, ".entail")
	mkdir(t, data)
	want := session.TierLandlock
	if here(t).namespaces {
		want = session.TierNamespaces
	}
	ws := openWorkspace(t, sandbox.Config{}, root)
	res := perform(t, ws, session.ReadOnly, shell("true"))
	wantDone(t, res) // the lowest tier is everywhere
	if got := res.Sandbox.Tier; got != want {
		t.Errorf("-host=%s: tier %q, want %q", *hostName, got, want)
	}
	ws = openWorkspace(t, sandbox.Config{Hidden: []string{data}}, root)
	res = perform(t, ws, session.ReadOnly, shell("true"))
	if got, want := res.Code == "", here(t).namespaces; got != want {
		t.Errorf("-host=%s: namespaces: %v, want %v: %+v", *hostName, got, want, res)
	}
}
