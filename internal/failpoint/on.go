//go:build failpoints

package failpoint

import (
	"os"
	"path/filepath"
	"sync"
	"time"
)

var (
	armed, place string
	first        sync.Once
)

// Arm names the one point to stop at, and the directory of its files. It is called before
// any other function of the program runs.
func Arm(point, dir string) { armed, place = point, dir }

// Reach stops at the armed point, the first time it is reached.
func Reach(point string) {
	if point != armed || armed == "" {
		return
	}
	first.Do(func() {
		if err := os.WriteFile(filepath.Join(place, "reached"), []byte(point), 0o600); err != nil {
			panic(err)
		}
		for range time.Tick(5 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(place, "go")); err == nil {
				return
			}
		}
	})
}
