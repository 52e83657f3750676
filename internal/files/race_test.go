//go:build linux && (amd64 || arm64)

package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/paths"
	"github.com/entail-fleet/entail/internal/wire"
)

// flip exchanges a directory and a link to another one as fast as it can, until
// the test ends.
func flip(t *testing.T, dir, link string) {
	t.Helper()
	stop := make(chan struct{})
	var flipper sync.WaitGroup
	flipper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("exchange: %v", err)
				return
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		flipper.Wait()
	})
}

// TestSwappedDirectory works on a path while its directory is exchanged for a
// link to the outside. What looks first and then opens the path is led outside:
// the control shows it.
func TestSwappedDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rounds = 20_000
	mkdir(t, w.root+"/d")
	write(t, w.root+"/d/f", "inside\n")
	write(t, w.outside+"/f", "outside\n")
	symlink(t, w.outside, w.root+"/l")
	s := open(t, w.bounds())
	flip(t, w.root+"/d", w.root+"/l")
	end := time.Now().Add(2 * time.Minute)
	for escapes := 0; escapes == 0; {
		if time.Now().After(end) {
			t.Fatal("not even a careless reader was led outside: the test is void")
		}
		path := w.root + "/d/f"
		resolved, err := paths.Resolve(path)
		if err != nil || !paths.Within(resolved, w.root) {
			continue
		}
		if data, err := os.ReadFile(path); err == nil && string(data) == "outside\n" {
			escapes++
		}
	}
	codes := map[string]int{}
	for range rounds {
		got := do(s, reading("d/f"))
		codes[got.Code]++
		if strings.HasPrefix(got.Output, "outside") {
			t.Fatalf("read outside: %+v", got)
		}
		if time.Now().After(end) {
			t.Fatalf("too slow: %v", codes)
		}
	}
	if codes[""] < 100 || codes[denied] < 100 {
		t.Errorf("outcomes %v: the race was not one", codes)
	}
	for range rounds / 20 {
		do(s, writing("d/f", "written\n"))
		do(s, editing("d/f", "written", "edited"))
		do(s, wire.Op{List: &wire.List{Path: "d"}})
	}
	if got := names(t, w.outside) + read(t, w.outside+"/f"); got != "f old.txtoutside\n" {
		t.Errorf("outside holds %q", got)
	}
	left, err := filepath.Glob(w.root + "/*/.entail-*")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
