package sessionstore_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// image is the content of a store's directory, by file.
type image map[string][]byte

func imageIn(t *testing.T, fs vfs.FS) image {
	t.Helper()
	names, err := fs.List("mirror")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	out := image{}
	for _, name := range names {
		out[name] = contentOf(t, fs, filepath.Join("mirror", name))
	}
	return out
}

// with is the image with one file changed; nil takes it away.
func (im image) with(name string, content []byte) image {
	out := maps.Clone(im)
	if out[name] = content; content == nil {
		delete(out, name)
	}
	return out
}

// fs writes the image to a file system of its own.
func (im image) fs(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll("mirror", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range im {
		f, err := fs.Create(filepath.Join("mirror", name), vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.Write(content)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}
