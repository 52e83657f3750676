//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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
	// refuses names the attacks that fail here whatever holds them: they cannot show
	// that the fence is what stops them.
	refuses []string
}

// hosts are the places that internal/confined starts this suite in.
func hosts() map[string]host {
	// Docker's default profile allows these two with capabilities nobody is given
	// here, and newer ones io_uring to nobody.
	always := []string{"descriptor of victim", "kernel keyring", "io_uring"}
	return map[string]host{
		"machine":         {namespaces: true},
		"docker":          {refuses: append(slices.Clone(always), namespaceAttacks()...)},
		"docker-sysadmin": {namespaces: true, refuses: always},
	}
}

// namespaceAttacks are those that take CAP_SYS_ADMIN or a new namespace.
func namespaceAttacks() []string {
	return []string{
		"new mount namespace", "new user namespace", "open a file system", "set attributes of mount", "sethostname",
	}
}

// here is the host that the flag names.
func here(t *testing.T) host {
	t.Helper()
	h, known := hosts()[*hostName]
	if !known {
		t.Fatalf("-host=%s is none of %v", *hostName, slices.Sorted(maps.Keys(hosts())))
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

// voids says whether an attack cannot succeed here even without the fence.
func (h host) voids(attack string, g target) bool {
	if attack == "flags of outside" && errors.Is(setFlags(g), unix.ENOTTY) {
		return true // FUSE has none
	}
	return slices.Contains(h.refuses, attack) || privileged(attack)
}

// TestTiersOfTheHost compares what the host must have with what can be had. Only
// mounts of its own hide what lies inside the workspace.
func TestTiersOfTheHost(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	data := filepath.Join(root, ".entail")
	mkdir(t, data)
	ws := openWorkspace(t, sandbox.Config{}, root)
	wantDone(t, perform(t, ws, session.ReadOnly, shell("true"))) // the lowest tier is everywhere
	ws = openWorkspace(t, sandbox.Config{Hidden: []string{data}}, root)
	res := perform(t, ws, session.ReadOnly, shell("true"))
	if got, want := res.Code == "", slices.Contains(here(t).tiers(), session.TierNamespaces); got != want {
		t.Errorf("-host=%s: namespaces: %v, want %v: %+v", *hostName, got, want, res)
	}
}
