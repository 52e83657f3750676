package verify_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/verify"
)

// Whatever stands in the two files of a session, reading them as an export ends, and
// what it gives is bytes of theirs: a record that none of them holds is never made up.
func FuzzOpenExport(f *testing.F) {
	for _, name := range []string{"a root that runs a call", "void records", "a fork with a stale prefix"} {
		d := &deployment{t: new(testing.T), logs: map[session.ID]*log{}, defaults: session.Defaults{Sandbox: session.WorkspaceWrite, Approval: session.Ask}}
		cleanTrees[name](d)
		dir := filepath.Join(f.TempDir(), "out")
		if err := verify.Export(f.Context(), d, dir, rootID); err != nil {
			f.Fatal(err)
		}
		var files [2][]byte
		for i, suffix := range []string{".jsonl", ".records.jsonl"} {
			var err error
			if files[i], err = os.ReadFile(filepath.Join(dir, string(rootID)+suffix)); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(files[0], files[1])
		f.Add(files[0], bytes.ReplaceAll(files[1], []byte(`"count":1`), []byte(`"count":-1`)))
		f.Add(files[0], bytes.ReplaceAll(files[1], []byte(`"seq":`), []byte(`"seq":18446744073709551615,"x":`)))
		f.Add(bytes.ReplaceAll(files[0], []byte(`"inheritedEventCount":0`), []byte(`"inheritedEventCount":18446744073709551615`)), files[1])
		f.Add(files[0], []byte(nil))
		f.Add([]byte(nil), files[1])
	}
	f.Fuzz(func(t *testing.T, events, records []byte) {
		dir := t.TempDir()
		for suffix, text := range map[string][]byte{".jsonl": events, ".records.jsonl": records} {
			if err := os.WriteFile(filepath.Join(dir, string(rootID)+suffix), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		src, err := verify.OpenExport(dir)
		if err != nil {
			t.Fatalf("an export with both files: %v", err)
		}
		err = src.Records(t.Context(), rootID, func(raw session.Raw) error {
			for line := range bytes.Lines(raw.Body) {
				base64 := bytes.Contains(records, []byte(`"body":`))
				if at := bytes.TrimSuffix(line, []byte("\n")); !base64 && !bytes.Contains(events, at) && !strings.HasPrefix(string(line), `{"type":"session"`) {
					t.Errorf("the line %q of record %d stands in no file", line, raw.StreamSeq)
				}
			}
			return nil
		})
		if _, runErr := verify.Run(t.Context(), src, verify.Options{AtRest: true}); err != nil && runErr == nil {
			t.Errorf("the records cannot be read (%v) and verify says nothing", err)
		}
	})
}

// A record of a log or a void one, whatever its headers and body are, comes back out
// of an export byte for byte.
func FuzzExportKeepsARecord(f *testing.F) {
	f.Add("3", "1", "1", strings.Repeat("0", 64)+" "+strings.Repeat("1", 64), "worker w1 i1", []byte("{\"type\":\"x\"}\n"))
	f.Add("", "-1", "01", "", "", []byte(nil))
	f.Add("18446744073709551616", "9223372036854775808", " 1", "\x00", "\xff", []byte("\xff\n\n"))
	f.Fuzz(func(t *testing.T, seq, count, format, link, writer string, body []byte) {
		d := newDeployment(t)
		d.root()
		headers := map[string]string{"X-Other": "kept"}
		for name, value := range map[string]string{
			session.HeaderSeq: seq, session.HeaderCount: count, session.HeaderFormat: format, session.HeaderLinkName: link, session.HeaderWriter: writer,
		} {
			if value = strings.ToValidUTF8(value, "?"); value != "" {
				headers[name] = value
			}
		}
		want := session.Raw{
			StreamSeq: d.seq + 1, Address: session.Address{Session: rootID, Class: session.ClassTurn}, Headers: headers, Body: body,
		}
		d.raws = append(d.raws, want)
		_, src := export(t, d)
		var got []session.Raw
		if err := src.Records(t.Context(), rootID, func(raw session.Raw) error { got = append(got, raw); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(d.raws) {
			t.Fatalf("%d records of %d came back", len(got), len(d.raws))
		}
		last := got[len(got)-1]
		if !maps.Equal(last.Headers, want.Headers) || !slices.Equal(last.Body, want.Body) || last.StreamSeq != want.StreamSeq {
			t.Errorf("record %s\n%q %q\ncame back as %s\n%q %q", strconv.FormatUint(want.StreamSeq, 10), want.Headers, want.Body,
				strconv.FormatUint(last.StreamSeq, 10), last.Headers, last.Body)
		}
	})
}
