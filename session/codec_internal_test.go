package session

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The codec is held to the library whose form it writes: encoding/json, without
// the escaping of HTML, with U+FFFD as itself and no list as the empty one.

// libraryWrites is that form.
func libraryWrites(t interface{ Fatal(...any) }, p any) []byte {
	plain := func(v any) []byte {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	}
	if h, ok := p.(*RequestHeader); ok && h.Tools == nil {
		p = &RequestHeader{h.Turn, h.Step, h.Provider, h.Model, []string{}, h.System, h.Attempt}
	}
	again := reflect.New(reflect.TypeOf(p).Elem()).Interface()
	if err := json.Unmarshal(plain(p), again); err != nil {
		t.Fatal(err)
	}
	return plain(again) // bytes that are no UTF-8 have become U+FFFD
}

// libraryReads reads data into a payload and holds it to the one form.
func libraryReads(t interface{ Fatal(...any) }, data []byte, p Payload) bool {
	return json.Unmarshal(data, p) == nil && bytes.Equal(libraryWrites(t, p), data)
}

// agree holds what the codec makes of data to what the library makes of it, for
// the payloads that this format accepts. It reports whether data was accepted.
func agree(t *testing.T, spec Spec, data []byte) bool {
	t.Helper()
	ours, theirs := spec.Payload(), spec.Payload()
	r := &reader{data: data}
	accepted := spec.codec.decode(r, ours) == nil && r.at == len(data) && ours.check() == nil
	if want := libraryReads(t, data, theirs) && theirs.check() == nil; accepted != want {
		t.Fatalf("%s %q: accepted %v, the library says %v", spec.Type, data, accepted, want)
	}
	if !accepted {
		return false
	}
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Fatalf("%s %q (-library +codec):\n%s", spec.Type, data, diff)
	}
	if again, same := spec.codec.encode(nil, ours); !bytes.Equal(again, data) || !same {
		t.Fatalf("%s %q is written again as %q (same %v)", spec.Type, data, again, same)
	}
	return true
}

// filled draws a value of a type of the format. Lists that have to be there are.
func filled(t *rapid.T, v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			filled(t, v.Field(i), name+"."+v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, name) {
			v.Set(reflect.New(v.Type().Elem()))
			filled(t, v.Elem(), name)
		}
	case reflect.Slice:
		n := rapid.IntRange(0, 3).Draw(t, name)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			filled(t, v.Index(i), name)
		}
	case reflect.Array:
		copy(v.Bytes(), rapid.SliceOfN(rapid.Byte(), v.Len(), v.Len()).Draw(t, name))
	case reflect.String:
		v.SetString(rapid.OneOf(
			rapid.String(), rapid.StringOfN(rapid.RuneFrom([]rune("a<&>\"\\/\b\f\n\r\t\x00\x1f\x7f\u00e9\u2028\u2029\ufffd\U0001f600")), 0, 8, -1),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 6), func(b []byte) string { return string(b) }),
		).Draw(t, name))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, name))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, name))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, name))
	default:
		t.Fatalf("%s: a %s", name, v.Kind())
	}
}

func TestPropertyCodecWritesWhatTheLibraryWrites(t *testing.T) {
	t.Parallel()
	for _, spec := range Catalogue() {
		t.Run(string(spec.Type), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				p := spec.Payload()
				filled(t, reflect.ValueOf(p).Elem(), "p")
				got, same := spec.codec.encode(nil, p)
				want := libraryWrites(t, p)
				if !bytes.Equal(got, want) {
					t.Fatalf("wrote %q, the library %q", got, want)
				}
				again := spec.Payload()
				if err := spec.codec.decode(&reader{data: got}, again); err != nil {
					t.Fatal(err)
				}
				library := spec.Payload()
				if err := json.Unmarshal(want, library); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(library, again); diff != "" {
					t.Fatalf("%q (-library +codec):\n%s", got, diff)
				}
				if diff := cmp.Diff(p, again); same != (diff == "") {
					t.Fatalf("%q is the same: %v (-written +read):\n%s", got, same, diff)
				}
			})
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		var h Header
		filled(t, reflect.ValueOf(&h).Elem(), "header")
		got, _ := headerCodec.encode(nil, &h)
		if want := libraryWrites(t, &h); !bytes.Equal(got, want) {
			t.Fatalf("wrote %q, the library %q", got, want)
		}
	})
}

// golden are the accepted payloads of every type: the data of the golden lines.
func golden(t testing.TB) map[Type][][]byte {
	t.Helper()
	lines, err := os.ReadFile("testdata/golden/events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	out := map[Type][][]byte{}
	for line := range bytes.Lines(lines) {
		var env envelope
		if err := json.Unmarshal(line, &env); err != nil {
			t.Fatal(err)
		}
		out[env.Type] = append(out[env.Type], env.Data)
	}
	return out
}

// edits are what a line is damaged with, one at a time, everywhere.
var edits = []string{
	"", " ", "\"", "\\", ",", "{", "}", "[]", "null", "0", "-", "1e2", "\x00", "\xff", "\u2028", "\\u0041", "\\/", "\\n", "\"x\":1,",
}

// Every payload that differs from a good one in one place is accepted by both or
// by neither.
func TestCodecAcceptsWhatTheLibraryAccepts(t *testing.T) {
	t.Parallel()
	tried, accepted := 0, 0
	samples := golden(t)
	for _, spec := range Catalogue() {
		for _, data := range samples[spec.Type] {
			if !agree(t, spec, data) {
				t.Fatalf("%s: %q is not accepted", spec.Type, data)
			}
			for i := range data {
				for _, e := range edits {
					for _, cut := range []int{0, 1} {
						tried++
						if agree(t, spec, append(append(bytes.Clone(data[:i]), e...), data[i+cut:]...)) {
							accepted++
						}
					}
				}
			}
		}
	}
	if tried < 100_000 || accepted < 1_000 {
		t.Errorf("%d payloads tried, %d accepted: too few to tell", tried, accepted)
	}
	t.Logf("%d payloads tried, %d accepted", tried, accepted)
}

func FuzzCodec(f *testing.F) {
	specs, samples := Catalogue(), golden(f)
	for i, spec := range specs {
		for _, data := range samples[spec.Type] {
			f.Add(uint8(i), data)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		agree(t, specs[int(which)%len(specs)], data)
	})
}

func BenchmarkCodec(b *testing.B) {
	for _, spec := range Catalogue() {
		data := golden(b)[spec.Type][0]
		p := spec.Payload()
		if err := spec.codec.decode(&reader{data: data}, p); err != nil {
			b.Fatal(err)
		}
		b.Run("encode/"+string(spec.Type), func(b *testing.B) {
			for b.Loop() {
				spec.codec.encode(make([]byte, 0, len(data)), p)
			}
		})
		b.Run("decode/"+string(spec.Type), func(b *testing.B) {
			for b.Loop() {
				if err := spec.codec.decode(&reader{data: data}, spec.Payload()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
