package coordinator

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
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

// A setting can be set where what is stored is older than the setting, and all
// that was stored stays.
func TestEditAddsToOlderSettings(t *testing.T) {
	t.Parallel()
	want := policy.DefaultSettings()
	want.Caps.Depth = 2
	stored, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]json.RawMessage
	if err := json.Unmarshal(stored, &tree); err != nil {
		t.Fatal(err)
	}
	delete(tree, "confinement")
	older, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	got, err := edit(older, "confinement.require", []byte(`"uid"`))
	want.Confinement.Require = session.TierUID
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("the settings are (-want +got), %v:\n%s", err, diff)
	}
}

// A section is given whole: what is left out of it would be set to its default, or
// to nothing, and nobody has asked for that.
func TestEditRefusesHalfASection(t *testing.T) {
	t.Parallel()
	stored, err := policy.DefaultSettings().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ path, value, says string }{
		{"confinement.network", `{"read-only":"deny"}`, `"confinement.network.workspace-write"`},
		{"confinement.network", `{}`, `"confinement.network.read-only"`},
		{"confinement", `{"require":"uid","network":{"read-only":"deny"},"uids":{"first":1000,"count":1},"fullAccessAs":"tree","limits":{}}`, `"confinement.limits.cpu"`},
		{"composition", `{"sandbox":true,"approvals":true}`, `"composition.presets"`},
	} {
		if s, err := edit(stored, tt.path, []byte(tt.value)); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s = %s comes to %+v, %v, want an error that names %s", tt.path, tt.value, s, err, tt.says)
		}
	}
	if _, err := edit(stored, "confinement.network", []byte(`{"read-only":"loopback","workspace-write":"deny"}`)); err != nil {
		t.Errorf("a whole section: %v", err)
	}
}
