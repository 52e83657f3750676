//go:build linux && (amd64 || arm64)

package main

import (
	"slices"
	"testing"
)

// What is hidden itself is hidden whatever else lies in it: nothing is granted around
// that.
func TestBeneath(t *testing.T) {
	t.Parallel()
	paths := []string{"/tmp/a", "/tmp/a/b/c", "/tmp/d/e", "/tmp/d/f", "/tmpx/g", "/h"}
	for _, tt := range []struct {
		dir, name string
		itself    bool
		inside    []string
	}{
		{"/", "tmp", false, []string{"/tmp/a", "/tmp/a/b/c", "/tmp/d/e", "/tmp/d/f"}},
		{"/", "tmpx", false, []string{"/tmpx/g"}},
		{"/", "h", true, nil},
		{"/tmp", "a", true, []string{"/tmp/a/b/c"}},
		{"/tmp", "d", false, []string{"/tmp/d/e", "/tmp/d/f"}},
		{"/tmp", "x", false, nil},
		{"/tmp/d", "f", true, nil},
	} {
		got := beneath(tt.dir, paths)[tt.name]
		if got.itself != tt.itself || !slices.Equal(got.inside, tt.inside) {
			t.Errorf("beneath(%s)[%s] = %+v, want %v %v", tt.dir, tt.name, got, tt.itself, tt.inside)
		}
	}
}
