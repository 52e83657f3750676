package session_test

import (
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
)

// Whatever is taken for an id, a call's id or a link is written again as it was,
// and an id can stand between two dots of a subject and name a file.
func FuzzNames(f *testing.F) {
	child := session.ChildID(rootID, "1.2.3")
	for _, s := range []string{
		string(rootID), string(child), string(child) + "-x", strings.ToUpper(string(rootID)), "../" + string(rootID), string(rootID) + ".>",
		"1.1.0", "01.1.0", "1.1.-1", "9223372036854775808.1.0", session.Link{1}.String(), strings.Repeat("F", 64), "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := session.ParseID(s); err == nil {
			if string(id) != s || len(s) > 64 || strings.ContainsAny(s, ".*> /\\\x00\r\n") || s != strings.ToLower(s) {
				t.Errorf("%q is taken for the id %q", s, id)
			}
			if p := id.Partition(); p < 0 || p > 255 {
				t.Errorf("%s is in partition %d", id, p)
			}
			if root, err := session.ParseID(string(id.Root())); err != nil || !root.IsRoot() || root.Partition() != id.Partition() {
				t.Errorf("the root of %s is %q: %v", id, root, err)
			}
		}
		if turn, step, index, ok := session.CallID(s).Parts(); ok && string(session.MakeCallID(turn, step, index)) != s {
			t.Errorf("%q is taken for call %d of step %d of turn %d", s, index, step, turn)
		}
		if l, err := session.ParseLink(s); err == nil && l.String() != s {
			t.Errorf("%q is taken for the link %s", s, l)
		}
	})
}
