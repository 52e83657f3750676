package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func args(t testing.TB, m map[string]any) string {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func bash(t testing.TB, command string) string {
	t.Helper()
	return args(t, map[string]any{"command": command})
}

// The same call in other clothes has one form, and another call has another
// (SPEC 5.8).
func TestSPEC5_8_OtherClothesAreTheSameCall(t *testing.T) {
	t.Parallel()
	const cwd = "/w/s"
	for _, same := range [][]string{
		{
			"echo x > f", "echo  x >f", " echo x > f ", "echo 'x' > f", `echo "x" > f`, `e"ch"o \x > f`, "echo x > ./f", "echo x > /w/s/f",
			"echo x > a/../f", "A=1 echo x > f", "A=1 B='2 3' echo x > f", "env A=1 echo x > f", "/usr/bin/env A=1 B=2 echo x > 'f'", "echo x \\\n> f",
		},
		{`rm -rf "a b"`, `rm -rf a\ b`, `rm   -rf 'a b'`, `X=y rm -rf a' 'b`},
		{"make && make install", "make  &&  make install", "make&&make install", "CC=gcc make && DESTDIR=/x make install"},
		{"cat ../o", "cat /w/o", "cat ./../o", `cat "/w/s/../o"`},
		{"if true; then rm f; fi", "if true\nthen rm ./f\nfi", `if true; then rm "f"; fi`},
		{"echo 'it is", "echo  'it is"}, // no command: told by its words
	} {
		for _, c := range same[1:] {
			if got, want := normal(cwd, "bash", bash(t, c)), normal(cwd, "bash", bash(t, same[0])); got != want {
				t.Errorf("%q is not %q:\n%s\n%s", c, same[0], got, want)
			}
		}
	}
	for _, other := range [][2]string{
		{"echo x > f", "echo y > f"},
		{"echo x > f", "echo x > g"},
		{"echo x > f", "echo x >> f"},
		{"echo x > f", "echo x"},
		{`rm "a b"`, "rm a b"},
		{"rm *", "rm '*'"},
		{"echo $X", "echo '$X'"},
		{`echo "$X"`, `echo '$X'`},
		{"a; b", "a && b"},
		{"a | b", "a || b"},
		{`echo "a  b"`, `echo "a b"`},
		{"A=1", "A=2"},
		{"env -i make", "make"},
		{"cat /o", "cat o"},
		{"cat ../o", "cat o"},
		{`echo 'a' 'b'`, `echo "a' 'b"`},
		{"curl http://a/b", "curl http:/a/b"},
		{"ls ~", "ls '~'"},
		{"sudo rm f", "rm f"},
	} {
		if got := normal(cwd, "bash", bash(t, other[0])); got == normal(cwd, "bash", bash(t, other[1])) {
			t.Errorf("%q and %q are one call: %s", other[0], other[1], got)
		}
	}
}

// Fields that change nothing of what a call does tell no call from another; the
// others do, for every tool.
func TestSPEC5_8_FieldsThatCount(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tool, one, two string
		same           bool
	}{
		{"bash", `{"command":"ls","timeout":3}`, `{"command":"ls"}`, true},
		{"bash", `{"command":"ls","sandbox_permissions":"workspace-write","justification":"a"}`, `{"sandbox_permissions":"workspace-write","command":"ls","justification":"b"}`, true},
		{"bash", `{"command":"ls","sandbox_permissions":"workspace-write","justification":"a"}`, `{"command":"ls"}`, false},
		{"write", `{"path":"f","content":"x"}`, `{"path":"/w/s/./f","content":"x"}`, true},
		{"write", `{"path":"f","content":"x"}`, `{"path":"f","content":"y"}`, false},
		{"write", `{"path":"f","content":"x"}`, `{"path":"../f","content":"x"}`, false},
		{"edit", `{"path":"f","old":"a","new":"b"}`, `{"path":"./f","old":"a","new":"b","all":false}`, true},
		{"edit", `{"path":"f","old":"a","new":"b"}`, `{"path":"f","old":"a","new":"c"}`, false},
		{"read", `{"path":"f"}`, `{"path":"f","offset":0}`, true},
		{"read", `{"path":"f"}`, `{"path":"f","offset":9}`, false},
		{"list", `{"path":"."}`, `{"path":"/w/s"}`, true},
		{"grep", `{"pattern":"x"}`, `{"pattern":"x","path":"."}`, true},
		{"grep", `{"pattern":"x"}`, `{"pattern":"y"}`, false},
		{"glob", `{"pattern":"x"}`, `{ "pattern" : "x" }`, true},
		{"delegate", `{"kind":"spawn","label":"l","prompt":"p"}`, `{"kind":"spawn","mode":"one-shot","label":"l","prompt":"p","background":true}`, true},
		{"delegate", `{"kind":"spawn","label":"l","prompt":"p"}`, `{"kind":"spawn","label":"l","prompt":"q"}`, false},
	} {
		one, two := normal("/w/s", tt.tool, tt.one), normal("/w/s", tt.tool, tt.two)
		if (one == two) != tt.same {
			t.Errorf("%s %s and %s: one call is %t, want %t:\n%s\n%s", tt.tool, tt.one, tt.two, one == two, tt.same, one, two)
		}
	}
	if normal("/w", "read", `{"path":"f"}`) == normal("/w", "list", `{"path":"f"}`) {
		t.Error("two tools are one call")
	}
}

// However words are spaced and quoted, and whatever is set in front, they are the
// same command; with another word they are another.
func TestSPEC5_8_AnyClothes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-z][a-zA-Z0-9 $"'\\*.,:=_-]{0,8}`), 1, 5).Draw(r, "words")
		words[0] = "cmd" // so that it is one, and sets no variable
		dressed := func(name string) string {
			var b strings.Builder
			for range rapid.IntRange(0, 2).Draw(r, name+" variables") {
				b.WriteString(rapid.StringMatching(`[A-Z]{1,3}=[a-z0-9]{0,4} `).Draw(r, "variable"))
			}
			for _, w := range words {
				b.WriteString(rapid.SampledFrom([]string{" ", "  ", "\t", " \\\n "}).Draw(r, "space"))
				switch rapid.IntRange(0, 2).Draw(r, "quotes") {
				case 0:
					b.WriteString("'" + strings.ReplaceAll(w, "'", `'\''`) + "'")
				case 1:
					b.WriteString(`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(w) + `"`)
				default:
					for _, c := range w {
						b.WriteString(`\` + string(c))
					}
				}
			}
			return b.String()
		}
		one, two := dressed("one"), dressed("two")
		if a, b := normal("/w", "bash", bash(t, one)), normal("/w", "bash", bash(t, two)); a != b {
			r.Fatalf("%q and %q of the words %q are two calls:\n%s\n%s", one, two, words, a, b)
		}
		words = append(words, "more")
		if three := dressed("three"); normal("/w", "bash", bash(t, one)) == normal("/w", "bash", bash(t, three)) {
			r.Fatalf("%q and %q are one call", one, three)
		}
	})
}
