//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

const markAttr = "user.entail.workspace"

// marking are the two forms of a mark: the one that the file system of the tests
// keeps, and the one for those that keep none.
func marking() map[string]func(dir, id string, first bool) error {
	return map[string]func(dir, id string, first bool) error{
		"attribute": func(dir, id string, first bool) error {
			if first {
				return sandbox.Mark(dir, id)
			}
			return sandbox.CheckMark(dir, id)
		},
		"file": sandbox.MarkPlainly,
	}
}

func TestSPEC7_9_MarkNamesAPlace(t *testing.T) {
	t.Parallel()
	for name, mark := range marking() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, other, missing := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "missing")
			elsewhere := func(what string, err error, say string) {
				t.Helper()
				if !errors.Is(err, sandbox.ErrElsewhere) || !strings.Contains(err.Error(), say) {
					t.Errorf("%s: got %v, want %q", what, err, say)
				}
			}
			ok := func(what string, err error) {
				t.Helper()
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			elsewhere("no mark", mark(dir, "w1", false), dir+" has no mark")
			ok("the first", mark(dir, "w1", true))
			ok("the second", mark(dir, "w1", true))
			ok("a later one", mark(dir, "w1", false))
			elsewhere("another place, for the first", mark(dir, "w2", true), `marked "w1"`)
			elsewhere("another place", mark(dir, "w2", false), `marked "w1"`)
			ok("after a refusal", mark(dir, "w1", false))
			elsewhere("no mark elsewhere", mark(other, "w1", false), "mark it: ")
			elsewhere("no directory", mark(missing, "w1", true), "no such file")
			if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the missing directory: %v", err)
			}
		})
	}
}

// TestMarkIsWrittenOnce has many mark a directory as different places at once.
func TestMarkIsWrittenOnce(t *testing.T) {
	t.Parallel()
	for name, mark := range marking() {
		dir := t.TempDir()
		won := make(chan string, 16)
		var all sync.WaitGroup
		for i := range cap(won) {
			all.Go(func() {
				if id := string(rune('a' + i)); mark(dir, id, true) == nil {
					won <- id
				}
			})
		}
		all.Wait()
		close(won)
		var ids []string
		for id := range won {
			ids = append(ids, id)
		}
		if len(ids) != 1 || mark(dir, ids[0], false) != nil {
			t.Errorf("%s: the directory is the place of %v, want one", name, ids)
		}
	}
}

// TestMarkIsNoLitter looks for the mark as a person and as a tool would. The test
// is void where the file system keeps no attributes, and says so.
func TestMarkIsNoLitter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := sandbox.Mark(dir, "w1"); err != nil {
		t.Fatal(err)
	}
	var buf [16]byte
	if n, err := syscall.Getxattr(dir, markAttr, buf[:]); err != nil || string(buf[:n]) != "w1" {
		t.Fatalf("the attribute is %q, %v; the temp directory of the tests must keep attributes", buf[:max(n, 0)], err)
	}
	if diff := cmp.Diff(snapshotNames(t, dir), []string(nil)); diff != "" {
		t.Errorf("files in a marked directory: %s", diff)
	}
	ws := openWorkspace(t, sandbox.Config{}, dir)
	if res := perform(t, ws, session.ReadOnly, shell("ls -A")); res.Output != "" || res.Failed {
		t.Errorf("got %+v", res)
	}
}

// TestHalfWrittenMarkIsNoMark covers a mark file that a crash left empty.
func TestHalfWrittenMarkIsNoMark(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".entail-workspace"), "")
	for _, first := range []bool{true, false} {
		if err := sandbox.MarkPlainly(dir, "w1", first); !errors.Is(err, sandbox.ErrElsewhere) {
			t.Errorf("got %v, want %v", err, sandbox.ErrElsewhere)
		}
	}
}

// Whether a place can be marked is found out without marking it.
func TestMarkableWritesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := sandbox.Markable(dir); err != nil {
		t.Errorf("one's own directory: %v", err)
	}
	if err := sandbox.CheckMark(dir, "w1"); !errors.Is(err, sandbox.ErrElsewhere) {
		t.Errorf("it is marked: %v", err)
	}
	if err := sandbox.Mark(dir, "w1"); err != nil {
		t.Fatal(err)
	}
	if err := sandbox.Markable(dir); err != nil {
		t.Errorf("a marked directory: %v", err)
	}
}
