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

// TestB7_SwapsUnderFourWorkersLeadNowhere has four workers at once do each operation
// on the path, ten thousand times in all. An operation may fail: by a denial, or because
// the path was two things in the course of it. That careless ones are led outside is shown by
// TestSwappedDirectory.
func TestB7_SwapsUnderFourWorkersLeadNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mkdir(t, w.root+"/d")
	write(t, w.root+"/d/f.txt", "inside\n")
	write(t, w.outside+"/f.txt", "outside\n")
	write(t, w.outside+"/secret.txt", "")
	symlink(t, w.outside, w.root+"/l")
	before := names(t, w.outside)
	flip(t, w.root+"/d", w.root+"/l")
	const workers, rounds = 4, 2500
	counts := make([]map[string]int, workers)
	var group sync.WaitGroup
	for i := range counts {
		counts[i] = map[string]int{}
		s := open(t, w.bounds())
		group.Go(func() {
			for range rounds {
				for _, op := range []wire.Op{
					writing("d/f.txt", "inside\n"), reading("d/f.txt"), editing("d/f.txt", "inside", "changed"),
					{List: &wire.List{Path: "d"}},
				} {
					got := do(s, op)
					counts[i][got.Code]++
					if got.Code == "" && (strings.Contains(got.Output, "outside\n") || strings.Contains(got.Output, "secret.txt")) {
						t.Errorf("led outside: %+v", got)
					}
				}
			}
		})
	}
	group.Wait()
	ended := map[string]int{}
	for _, codes := range counts {
		for code, n := range codes {
			ended[code] += n
		}
	}
	if ended[""] < 100 || ended[denied] < 100 {
		t.Errorf("outcomes %v: the race was not one", ended)
	}
	if got := names(t, w.outside) + read(t, w.outside+"/f.txt"); got != before+"outside\n" {
		t.Errorf("outside holds %q, want %q", got, before+"outside\n")
	}
}
