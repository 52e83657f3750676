package session_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
)

const ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

// SHA-256 of that ULID starts with 0x8e (sha256sum): 142 mod 8 is 6.
func TestRootID(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		ulid       string
		partitions int
		want       session.ID // empty: refused
	}{
		{"one partition", ulid, 1, "0001arz3ndektsv4rrffq69g5fav"},
		{"a fleet's eight", ulid, 8, "0601arz3ndektsv4rrffq69g5fav"},
		{"every value of the byte", ulid, 256, "8e01arz3ndektsv4rrffq69g5fav"},
		{"lower case is the same ULID", strings.ToLower(ulid), 8, "0601arz3ndektsv4rrffq69g5fav"},
		{"no partition", ulid, 0, ""},
		{"too many", ulid, 257, ""},
		{"empty", "", 1, ""},
		{"short", ulid[1:], 1, ""},
		{"long", ulid + "0", 1, ""},
		{"over 128 bits", "8" + ulid[1:], 1, ""},
		{"letter outside the alphabet", "01ARZ3NDEKTSV4RRFFQ69G5FAU", 1, ""},
		{"a letter that lower-cases into the alphabet", "01ARZ3NDE\u212aTSV4RRFFQ69G5FAV", 1, ""},
		{"a dash", "01ARZ3NDEK-SV4RRFFQ69G5FAV", 1, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := session.RootID(tt.ulid, tt.partitions)
			checkID(t, got, err, tt.want)
		})
	}
}

func checkID(t *testing.T, got session.ID, err error, want session.ID) {
	t.Helper()
	if got != want || (err == nil) != (want != "") {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if err != nil && !errors.Is(err, session.ErrBadID) {
		t.Errorf("%v is not ErrBadID", err)
	}
	if len(got) > 64 {
		t.Errorf("%q has %d bytes", got, len(got))
	}
}

// The suffix is the first 16 bytes of H("entail/child/1", parent, call) in
// Crockford's base32; this one was computed outside of Go.
func TestChildID(t *testing.T) {
	t.Parallel()
	const want = rootID + "-8236d5m63ygehzbxxassed7mb0"
	got := session.ChildID(rootID, "2.1.0")
	if got != want {
		t.Errorf("child of call 2.1.0 is %s, want %s", got, want)
	}
	if other := session.ChildID(rootID, "2.1.1"); other == got {
		t.Error("two calls have one child")
	}
	below := session.ChildID(got, "2.1.0")
	if below.Root() != rootID || below == got || len(below) > 64 {
		t.Errorf("child of a child is %s", below)
	}
	if _, err := session.ParseID(string(below)); err != nil {
		t.Error(err)
	}
}

func TestForkID(t *testing.T) {
	t.Parallel()
	got, err := session.ForkID(rootID, ulid)
	checkID(t, got, err, rootID+"-01arz3ndektsv4rrffq69g5fav")
	got, err = session.ForkID(session.ChildID(rootID, "1.1.0"), ulid)
	checkID(t, got, err, rootID+"-01arz3ndektsv4rrffq69g5fav")
	for name, bad := range map[string][2]string{
		"no root":            {"", ulid},
		"root of dots":       {strings.Repeat(".", 28), ulid},
		"empty":              {string(rootID), ""},
		"over 128 bits":      {string(rootID), "8" + ulid[1:]},
		"outside lower case": {string(rootID), "01ARZ3NDE\u212aTSV4RRFFQ69G5FAV"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := session.ForkID(session.ID(bad[0]), bad[1])
			checkID(t, got, err, "")
		})
	}
}

func TestParseID(t *testing.T) {
	t.Parallel()
	const root, below = string(rootID), string(childID)
	tests := []struct {
		name, id string
		ok       bool
	}{
		{"root", root, true},
		{"child", below, true},
		{"partition ff", "ff" + root[2:], true},
		{"empty", "", false},
		{"300 characters", strings.Repeat("0", 300), false},
		{"dot", root[:10] + "." + root[11:], false},
		{"star", root[:10] + "*" + root[11:], false},
		{"greater", root[:10] + ">" + root[11:], false},
		{"space", root[:10] + " " + root[11:], false},
		{"space behind", root + " ", false},
		{"newline behind", root + "\n", false},
		{"zero byte", root[:27] + "\x00", false},
		{"escape", root[:27] + "\x1b", false},
		{"upper case", "00" + ulid, false},
		{"upper case in the partition", "AB" + root[2:], false},
		{"no hex in the partition", "zz" + root[2:], false},
		{"over 128 bits", "00" + "8" + root[3:], false},
		{"letter outside the alphabet", root[:27] + "u", false},
		{"short", root[1:], false},
		{"dash without a suffix", root + "-", false},
		{"suffix alone", below[28:], false},
		{"two dashes", below + "-" + below[29:], false},
		{"short suffix", below[:len(below)-1], false},
		{"long suffix", below + "0", false},
		{"upper case in the suffix", root + "-" + ulid, false},
		{"no UTF-8", root[:27] + "\xff", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := session.ParseID(tt.id)
			if !tt.ok {
				tt.id = ""
			}
			checkID(t, got, err, session.ID(tt.id))
		})
	}
}

func TestIDParts(t *testing.T) {
	t.Parallel()
	id := "06" + rootID[2:] + "-" + childID[29:]
	if id.IsRoot() || id.Root() != id[:28] || !id.Root().IsRoot() || id.Partition() != 6 {
		t.Errorf("%s: root %s, partition %d", id, id.Root(), id.Partition())
	}
}

func TestCallIDParts(t *testing.T) {
	t.Parallel()
	if got := session.MakeCallID(12, 3, 0); got != "12.3.0" {
		t.Errorf("call id is %q", got)
	}
	turn, step, index, ok := session.CallID("12.3.0").Parts()
	if !ok || turn != 12 || step != 3 || index != 0 {
		t.Errorf("12.3.0 has parts %d, %d, %d, %t", turn, step, index, ok)
	}
	for _, bad := range []session.CallID{"", "1", "1.1", "1.1.1.1", "0.1.0", "1.0.0", "1.1.-1", "01.1.0", "+1.1.0", "1.1.a", "call_0", "1.1.99999999999999999999"} {
		if _, _, _, ok := bad.Parts(); ok {
			t.Errorf("%q is a call id", bad)
		}
	}
}

// A notice's id derives from child, turn and the seq of its turn/end, so that a
// second notice of one turn is the same message (SPEC 7.3). Computed outside of
// Go from H("entail/notice/1", child, "3", "41").
func TestNoticeID(t *testing.T) {
	t.Parallel()
	if got := session.NoticeID(rootID, 3, 41); got != "nb356b4d1c771691d5b89a1fde2f92c23" {
		t.Errorf("notice id is %s", got)
	}
}

func TestParseLink(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("0a", 32)
	l, err := session.ParseLink(text)
	if err != nil || l.String() != text || l.IsZero() {
		t.Errorf("link is %s, %v", l, err)
	}
	for _, bad := range []string{"", text[:62], text + "00", strings.ToUpper(text), text[:63] + "g"} {
		if _, err := session.ParseLink(bad); err == nil {
			t.Errorf("%q is a link", bad)
		}
	}
}

// Both links of a root's genesis, computed outside of Go from the golden lines.
func TestLinksOfGoldenRoot(t *testing.T) {
	t.Parallel()
	raws, _, _ := tree(t)
	const want = "79660d5943159ec6a9569e331f1493efe749845db2667bc06168150097a4b9c6" +
		" f5e096f58c131c625a36df7539b3dc08cf48f8952f2f6d7a2d252260b47a5600"
	if got := raws["root"].Headers["Entail-Link"]; got != want {
		t.Errorf("links are %s, want %s", got, want)
	}
}
