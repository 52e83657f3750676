package golden_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

var write = flag.String("write", "", "write the story into this directory of testdata, which must not be there")

// The files of one directory.
const (
	recordsFile = "records.jsonl"
	mirrorFile  = "mirror.tar.gz"
)

// leastRecords is a floor for what a directory holds: the story has more.
const leastRecords = 40

// stored is one message of the stream. A body that is text stands as text, so that
// the file can be read and reviewed; any other one as base64.
type stored struct {
	Sequence uint64            `json:"sequence"`
	Subject  string            `json:"subject"`
	Headers  map[string]string `json:"headers"`
	Text     string            `json:"text,omitempty"`
	Bytes    []byte            `json:"bytes,omitempty"`
}

// TestWrite writes the story once, when it is asked to. What is there is left alone.
func TestWrite(t *testing.T) {
	if *write == "" {
		return
	}
	dir := filepath.Join("testdata", *write)
	if _, err := os.Stat(dir); err == nil {
		t.Logf("%s is there: a golden directory is written once and never again", dir)
		return
	}
	records, mirror := tell(t)
	must(t, os.MkdirAll(dir, 0o750))
	must(t, os.WriteFile(filepath.Join(dir, recordsFile), encodeRecords(t, records), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, mirrorFile), pack(t, mirror), 0o600))
}

func encodeRecords(t *testing.T, records []session.Raw) []byte {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, r := range records {
		m := stored{Sequence: r.StreamSeq, Subject: stream.Subject(r.Address), Headers: map[string]string{}}
		for name, value := range r.Headers {
			if strings.HasPrefix(name, "Entail-") { // the others are the broker's
				m.Headers[name] = value
			}
		}
		if utf8.Valid(r.Body) {
			m.Text = string(r.Body)
		} else {
			m.Bytes = r.Body
		}
		must(t, enc.Encode(m))
	}
	return out.Bytes()
}

// readRecords reads what encodeRecords wrote.
func readRecords(t *testing.T, dir string) []session.Raw {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", dir, recordsFile))
	must(t, err)
	defer f.Close()
	var out []session.Raw
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var m stored
		must(t, json.Unmarshal(lines.Bytes(), &m))
		a, err := stream.ParseSubject(m.Subject)
		must(t, err)
		body := m.Bytes
		if m.Bytes == nil {
			body = []byte(m.Text)
		}
		out = append(out, session.Raw{StreamSeq: m.Sequence, Address: a, Headers: m.Headers, Body: body})
	}
	must(t, lines.Err())
	if len(out) < leastRecords {
		t.Fatalf("%s holds %d records, want at least %d", dir, len(out), leastRecords)
	}
	return out
}

// pack archives a mirror's directory.
func pack(t *testing.T, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	tape := tar.NewWriter(zip)
	must(t, tape.AddFS(os.DirFS(dir)))
	must(t, tape.Close())
	must(t, zip.Close())
	return out.Bytes()
}

// unpack writes an archived mirror into a directory of the test's.
func unpack(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", dir, mirrorFile))
	must(t, err)
	defer f.Close()
	zip, err := gzip.NewReader(f)
	must(t, err)
	into, err := os.OpenRoot(t.TempDir())
	must(t, err)
	defer into.Close()
	files := 0
	for tape := tar.NewReader(zip); ; files++ {
		h, err := tape.Next()
		if err == io.EOF { //nolint:errorlint // what the package documents
			break
		}
		must(t, err)
		if h.FileInfo().IsDir() {
			must(t, into.MkdirAll(h.Name, 0o700))
			continue
		}
		must(t, into.MkdirAll(filepath.Dir(h.Name), 0o700))
		file, err := into.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		must(t, err)
		_, err = io.Copy(file, tape)
		must(t, err)
		must(t, file.Close())
	}
	if files == 0 {
		t.Fatal(fmt.Errorf("%s of %s is empty", mirrorFile, dir))
	}
	return into.Name()
}
