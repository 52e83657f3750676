package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/entail-fleet/entail/broker"
)

// badWorld is a deployment in which nothing goes on by itself, and a working
// directory with everything that an input can wrongly name.
type badWorld struct {
	*world
	idle, told, doomed string // sessions; told has had its turn
	old, plain         string // addresses of servers that are too old, and without JetStream
	table              map[string][]wrong
	judged             map[string]bool // the entries of table that an input had
	before             traces
}

func newBadWorld(t *testing.T) *badWorld {
	t.Helper()
	w := &badWorld{world: newWorld(t), judged: map[string]bool{}}
	t.Chdir(w.work)
	for name, text := range map[string]string{
		"file": "", "empty": "", "half": `{"a`, "story.yaml": "sessions:\n  root:\n    - calls: [{id: c1, tool: list, args: {path: .}}]\n    - text: fine\n",
		"wrong.yaml": "sessions:\n  root:\n    - calls: [{id: c1, tool: fly, args: {}}]\n", "deep.yaml": "dir:\n  x: y\n", "large.yaml": strings.Repeat("#", 800<<10),
	} {
		w.must(os.WriteFile(name, []byte(text), 0o600))
	}
	w.must(os.WriteFile("loud", []byte("{}"), 0o644))
	w.must(os.Mkdir("sub", 0o700))
	w.must(os.Mkdir("a\nb", 0o700))
	w.must(os.Symlink("nowhere", "dangling"))
	create := func(prompt ...string) string {
		return strings.TrimSpace(w.entail(append([]string{"session", "new", "--model", "scripted:story.yaml"}, prompt...)...))
	}
	w.idle, w.doomed, w.told = create(), create(), create("go")
	w.until("idle (completed", "session", "show", w.told)
	token, err := broker.ReadTokenFile(filepath.Join(w.dir, "token"))
	w.must(err)
	w.old = fakeServer(t, oldGreeting)
	w.plain = withoutJetStream(t, broker.Identity{Role: token.Client.Role, Name: token.Client.Name, Seed: token.Client.Seed})
	w.table, w.before = w.inputs(), w.traces()
	return w
}

// refused runs a command line that makes no sense, for people and for programs,
// and wants it refused in words and without a trace.
func (w *badWorld) refused(t *testing.T, what string, c command, exit int, says ...string) {
	t.Helper()
	text := w.soon(what, c)
	asJSON := text
	if !strings.Contains(what, "--output") { // which says itself what is written
		c.args = append([]string{"-o", "json"}, c.args...)
		asJSON = w.soon(what, c)
	}
	if after := w.traces(); !reflect.DeepEqual(after, w.before) {
		t.Fatalf("%s: it left %+v, before it there was %+v", what, after, w.before)
	}
	var program struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(asJSON.out), &program); err != nil && asJSON != text {
		t.Errorf("%s: with -o json it says %q on standard output, %q beside it", what, asJSON.out, asJSON.err)
	}
	for _, r := range []ran{text, asJSON} {
		if r.exit != exit {
			t.Errorf("%s: exit %d, want %d: %s%s", what, r.exit, exit, r.err, r.out)
		}
	}
	for _, message := range []string{text.err, program.Error.Message} {
		for _, alternatives := range says {
			if message != "" && !hasOne(message, alternatives) {
				t.Errorf("%s: the error has no %q: %s", what, alternatives, message)
			}
		}
	}
	if strings.Contains(text.err+asJSON.out, "hunter2") {
		t.Errorf("%s: the error shows the password: %s", what, text.err)
	}
	if text.out != "" || len(text.err) > 1500 || strings.ContainsFunc(strings.TrimSuffix(text.err, "\n"), func(r rune) bool { return r < ' ' && r != '\n' }) {
		t.Errorf("%s: it says %q on standard output, and %d bytes beside it: %.200q", what, text.out, len(text.err), text.err)
	}
}

// soon runs a command. What makes no sense and is not refused may run for ever.
func (w *badWorld) soon(what string, c command) ran {
	w.t.Helper()
	done := make(chan ran, 1)
	go func() { done <- c.run() }()
	select {
	case r := <-done:
		return r
	case <-time.After(awaitLimit):
		w.t.Fatalf("%s: it is not refused, it runs", what)
	}
	return ran{}
}

func hasOne(text, alternatives string) bool {
	return strings.Contains(text, alternatives) ||
		slices.ContainsFunc(strings.Split(alternatives, "|"), func(s string) bool { return strings.Contains(text, s) })
}

// TestBadInput breaks one thing at a time of a line of every command: a flag that
// is none, too few or too many arguments, and each value that the table says an
// argument or a flag refuses, from the command line, the environment and a file. A
// command or an input that the table does not know fails it.
//
// It is not parallel: it changes the working directory.
func TestBadInput(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	w := newBadWorld(t)
	lines, commands := w.lines(), 0
	walk(newRoot(&app{}), func(cmd *cobra.Command) {
		path := strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), "entail"))
		if _, ok := exempt()[path]; ok || cmd.Name() == "process" {
			return
		}
		commands++
		if cmd.HasSubCommands() {
			w.refused(t, path+": no such command", command{args: append(strings.Fields(path), "nonsense")}, exitUsage, `"nonsense"`, "--help` says what it takes")
			return
		}
		l, ok := lines[path]
		if !ok {
			t.Errorf("command %q has no line in the table", path)
			return
		}
		w.usage(t, cmd, path, l)
		w.arguments(t, cmd, path, l)
		w.flags(t, cmd, path, l)
	})
	if commands < 34 {
		t.Errorf("%d commands were tried, want at least 34", commands)
	}
	var named []string
	for _, flag := range own() {
		name, _, _ := strings.Cut(flag, "=")
		named = append(named, strings.TrimPrefix(name, "--"))
	}
	if want := slices.Sorted(slices.Values(ownServer())); !slices.Equal(named, want) {
		t.Errorf("the table has the flags %v of an own server, want %v", named, want)
	}
	for _, flag := range own() {
		l := lines["run"]
		l.flags = append(slices.Clone(l.flags), flag)
		w.refused(t, "run beside a server: "+flag, w.command("run", l, nil), exitUsage, strings.SplitN(flag, "=", 2)[0], "give it to `entail up`")
	}
	for key := range w.table {
		if !w.judged[key] {
			t.Errorf("no command has the input %q of the table", key)
		}
	}
	w.together(t)
	w.control(t, lines)
}

// command composes a line.
func (w *badWorld) command(path string, l line, args []string) command {
	words := append(strings.Fields(path), l.flags...)
	if l.asks || path == "up" {
		words = append(words, "--dir="+w.dir)
	}
	if args == nil {
		args = l.args
	}
	return command{args: append(append(words, "--"), args...)}
}

// usage breaks the shape of a line.
func (w *badWorld) usage(t *testing.T, cmd *cobra.Command, path string, l line) {
	t.Helper()
	strange := l
	strange.flags = append(slices.Clone(l.flags), "--unheard")
	w.refused(t, path+": no such flag", w.command(path, strange, nil), exitUsage, "--unheard", "--help` says what it takes")
	names := argumentsOf(cmd)
	if len(names) > 0 && !strings.HasPrefix(names[0], "[") {
		w.refused(t, path+" without arguments", w.command(path, l, []string{}), exitUsage, "entail "+path+" takes", "entail "+path+" "+names[0])
	}
	if n := len(names); n == 0 || !slices.Contains([]string{"PROMPT", "[PROMPT]", "MESSAGE", "[ARG...]"}, names[n-1]) {
		w.refused(t, path+" with one argument more", w.command(path, l, append(slices.Clone(l.args), "more")), exitUsage, "entail "+path, "takes")
	}
}

// argumentsOf lists the arguments that a command's usage names.
func argumentsOf(cmd *cobra.Command) []string {
	words := strings.Fields(cmd.Use)[1:]
	if i := slices.IndexFunc(words, func(s string) bool { return strings.HasPrefix(s, "--") }); i >= 0 {
		words = words[:i]
	}
	return words
}

// arguments breaks one argument at a time.
func (w *badWorld) arguments(t *testing.T, cmd *cobra.Command, path string, l line) {
	t.Helper()
	names := argumentsOf(cmd)
	if len(names) != len(l.args) {
		t.Errorf("%s: the table has %d arguments, the usage %v", path, len(l.args), names)
		return
	}
	for i, name := range names {
		for _, v := range w.values(t, path, strings.Trim(name, "[]")) {
			args := slices.Clone(l.args)
			args[i] = v.value
			if name[0] == '[' && v.value == "" && path == "session new" {
				continue // no prompt is no prompt
			}
			c := w.command(path, l, args)
			c.stdin = v.stdin
			w.refused(t, fmt.Sprintf("%s: %s is %.40q", path, name, v.value), c, v.exitCode(), v.says...)
		}
	}
}

func (v wrong) exitCode() int {
	if v.exit == 0 {
		return exitUsage
	}
	return v.exit
}

// values finds what an input refuses.
func (w *badWorld) values(t *testing.T, path, input string) []wrong {
	t.Helper()
	for _, key := range []string{path + " " + input, input} {
		if values, ok := w.table[key]; ok {
			w.judged[key] = true
			return values
		}
	}
	if _, ok := exempt()[path+" "+input]; !ok {
		t.Errorf("%s: the table says nothing of %s", path, input)
	}
	return nil
}

// flags breaks one flag at a time.
func (w *badWorld) flags(t *testing.T, cmd *cobra.Command, path string, l line) {
	t.Helper()
	cmd.InheritedFlags() // merges them
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		finds := slices.Contains([]string{"dir", "server", "token-file"}, f.Name)
		if finds && !l.asks && (path != "up" || f.Name != "dir") {
			return // it asks no deployment
		}
		for i, v := range w.values(t, path, "--"+f.Name) {
			what := fmt.Sprintf("%s: --%s is %.40q", path, f.Name, v.value)
			broken := w.command(path, beside(l, path, f.Name), nil)
			at := slices.Index(broken.args, "--")
			flagged := broken
			flagged.args = slices.Insert(slices.Clone(broken.args), at, "--"+f.Name+"="+v.value)
			w.refused(t, what, flagged, v.exitCode(), v.says...)
			if !slices.Contains(configurable(), f.Name) || f.Name == "dir" || f.Annotations[given] != nil || strings.Contains(v.value, "\x00") {
				continue
			}
			fromEnv := broken
			fromEnv.env = map[string]string{envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")): v.value}
			w.refused(t, what+" in the environment", fromEnv, v.exitCode(), v.says[0])
			if i == 0 {
				w.inFile(t, what, broken, f.Name, v)
			}
		}
	})
}

// beside is a line without what cannot stand beside a flag.
func beside(l line, path, flag string) line {
	switch {
	case path == "policy set" && (flag == "approvals" || flag == "preset"):
		l.flags = nil
	case path == "verify" && flag == "export":
		l.args = []string{}
	default:
		l.flags = slices.DeleteFunc(slices.Clone(l.flags), func(s string) bool { return strings.HasPrefix(s, "--"+flag+"=") })
	}
	return l
}

// inFile gives a flag's value in a configuration file.
func (w *badWorld) inFile(t *testing.T, what string, c command, flag string, v wrong) {
	t.Helper()
	text, err := json.Marshal(map[string]string{flag: v.value}) // JSON is YAML
	w.must(err)
	file := t.TempDir() + "/entail.yaml"
	w.must(os.WriteFile(file, text, 0o600))
	c.args = append([]string{"--config", file}, c.args...)
	w.refused(t, what+" in a file", c, v.exitCode(), v.says[0])
}

// control runs the lines that were broken as they are: what was refused was
// refused for what was broken in it.
func (w *badWorld) control(t *testing.T, lines map[string]line) {
	t.Helper()
	for path, l := range lines {
		if l.notRun != "" {
			continue
		}
		if r := w.command(path, l, nil).run(); r.exit != exitDone {
			t.Errorf("the whole line of %s exits with %d: %s", path, r.exit, r.err)
		}
	}
	if after := w.traces(); after.Last == w.before.Last || after.Revision == w.before.Revision || len(after.Files) == len(w.before.Files) {
		t.Error("lines that make sense left no trace")
	}
}
