package coordinator

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
)

// A request that is taken means the same when it is written again, and nothing stands
// behind it; one that is refused is refused as a request.
func FuzzDecodeRequest(f *testing.F) {
	methods := (*Coordinator)(nil).endpoints()
	for i, e := range methods {
		empty, err := json.Marshal(e.request)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), empty)
		f.Add(uint8(i), append(bytes.Clone(empty), "{}"...))
		f.Add(uint8(i), bytes.Replace(empty, []byte(`"v":0`), []byte(`"v":1,"V":2,"more":null`), 1))
	}
	f.Add(uint8(2), []byte(`{"v":1,"id":"00","cwd":"/w","model":{"provider":"scripted","model":"m","script":"a: \ud800"},"prompt":null}`))
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		e := methods[int(which)%len(methods)]
		in := reflect.New(reflect.TypeOf(e.request).Elem()).Interface()
		if err := decode(e.method, body, in); err != nil {
			if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Code != client.CodeInvalid {
				t.Fatalf("%s refuses %q with %v", e.method, body, err)
			}
			return
		}
		var more json.RawMessage
		if json.Unmarshal(body, &more) != nil {
			t.Fatalf("%s takes %q, which is no JSON", e.method, body)
		}
		once, err := json.Marshal(in)
		if err != nil {
			return // a raw value of a setting is checked where it is set
		}
		again := reflect.New(reflect.TypeOf(e.request).Elem()).Interface()
		if err := decode(e.method, once, again); err != nil {
			t.Fatalf("%s takes %q and not %q: %v", e.method, body, once, err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s: %q is written again as %q: %v", e.method, once, twice, err)
		}
	})
}

// Whatever is set at whatever path, the settings stay valid, and who set them, when
// and in which version is nobody's to set.
func FuzzEditSettings(f *testing.F) {
	stored, err := policy.DefaultSettings().Encode()
	if err != nil {
		f.Fatal(err)
	}
	for path, value := range map[string]string{
		"defaults.sandbox": `"workspace-write"`, "caps.depth": "-1", "caps": `{"depth":1}`, "presets": "[]", "version": "2", "Version": "2",
		"by": `{"kind":"person","id":"eve"}`, "defaults": `{"sandbox":"read-only","approval":"ask","Sandbox":"yolo"}`, "": "1", "lease": `"1h"`,
		"caps.depth.x": "1", ".": "{}",
	} {
		f.Add(path, []byte(value))
	}
	f.Fuzz(func(t *testing.T, path string, value []byte) {
		s, err := edit(stored, path, value)
		if err != nil {
			return
		}
		if err := s.Validate(); err != nil {
			t.Errorf("setting %q to %s gives %v", path, value, err)
		}
		if was := policy.DefaultSettings(); s.Version != was.Version || s.By != nil || s.At != 0 {
			t.Errorf("setting %q to %s changes who, when or the version: %+v", path, value, s)
		}
	})
}
