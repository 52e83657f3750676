package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// wrong is a value that an input of a command refuses, and how: the exit code,
// exitUsage when it is zero, and words of the error. The first of them says what
// is wrong, the others lead out; "a|b" stands for one of the two.
type wrong struct {
	value string
	exit  int
	says  []string
	stdin string
}

func bad(value string, says ...string) wrong { return wrong{value: value, says: says} }

// line is a command line that makes sense: the values of the arguments that the
// command's usage names, and flags.
type line struct {
	args, flags []string
	asks        bool   // it asks a deployment
	notRun      string // why the whole line is not run, if it is not
}

// lines gives a line for each command that is no group of others.
func (w *badWorld) lines() map[string]line {
	one, long := []string{w.idle}, "it runs a deployment of its own: TestScripts"
	const quiet = "no session asks anything here: TestScripts"
	return map[string]line{
		"demo":           {notRun: "it runs for many seconds: TestDemo"},
		"bench":          {notRun: "it runs for a minute: internal/bench"},
		"up":             {notRun: long},
		"run":            {args: []string{"go"}, flags: []string{"--model=scripted:story.yaml"}, asks: true},
		"doctor":         {flags: []string{"--require=landlock"}},
		"sandbox exec":   {args: []string{"true", "x"}, flags: []string{"--mode=read-only"}},
		"version":        {},
		"completion":     {args: []string{"bash"}},
		"keys init":      {args: []string{"keys"}},
		"verify":         {args: one, asks: true},
		"explain":        {args: []string{w.told, "1.1.0"}, asks: true},
		"send":           {args: []string{w.idle, "hello"}, asks: true},
		"interrupt":      {args: one, asks: true},
		"cancel":         {args: []string{w.doomed}, asks: true},
		"settle":         {args: []string{w.told, "1.1.0"}, flags: []string{"--executed"}, asks: true, notRun: "no outcome is unknown here: coordinator's TestSPEC5_9_AnUnknownOutcomeIsSettledOnce"},
		"approvals ls":   {asks: true},
		"approvals show": {args: []string{w.idle, "ask-1.1.0-1"}, asks: true, notRun: quiet},
		"approve":        {args: []string{w.idle, "ask-1.1.0-1"}, asks: true, notRun: quiet},
		"deny":           {args: []string{w.idle, "ask-1.1.0-1"}, asks: true, notRun: quiet},
		"session new":    {args: []string{"go"}, flags: []string{"--model=scripted:story.yaml"}, asks: true},
		"session ls":     {asks: true},
		"session show":   {args: one, asks: true},
		"session tree":   {args: one, asks: true},
		"session tail":   {args: one, asks: true},
		"session fork":   {args: []string{w.told, "again"}, asks: true},
		"session export": {args: []string{w.told, "exported"}, asks: true},
		"session release": {
			args: []string{w.idle}, flags: []string{"--reason=why"}, asks: true, notRun: "no log is damaged here: TestDamagedLogs",
		},
		"policy get":       {args: one, asks: true},
		"policy set":       {args: one, flags: []string{"--sandbox=workspace-write"}, asks: true},
		"policy explain":   {args: one, asks: true},
		"config get":       {args: []string{"caps.depth"}, asks: true},
		"config set":       {args: []string{"caps.depth", "2"}, asks: true},
		"config history":   {asks: true},
		"config effective": {},
		"worker ls":        {asks: true},
		"worker cordon":    {args: []string{"w7"}, flags: []string{"--reason=why"}, asks: true},
		"worker history":   {args: []string{"w7"}, asks: true},
		"worker uncordon":  {args: []string{"w7"}, asks: true},
		"worker drain":     {args: []string{"w7"}, flags: []string{"--grace=1m"}, asks: true},
	}
}

// exempt are commands and inputs that refuse nothing, and why.
func exempt() map[string]string {
	const (
		anyText = "a prompt, which the coordinator refuses in its own words: TestBadRequestsAreRefused"
		oneOf   = "a switch; both or neither: TestSettleWantsOneWord"
	)
	return map[string]string{
		"process coordinator":   "nobody types it: TestProcessesAreNotTyped",
		"process worker":        "nobody types it: TestProcessesAreNotTyped",
		"demo --fleet":          "TestDemoRefusesWhatIsNoFleet has its values",
		"session tail --from":   "a seq that is not there yet prints nothing; what is no number is refused",
		"session fork [PROMPT]": "without one the fork waits for a message",
		"approve --message":     anyText,
		"deny --message":        anyText,
		"settle --executed":     oneOf,
		"settle --not-executed": oneOf,
		"settle --message":      anyText,
	}
}

const (
	unknownID = "0001m8pgrjs8m9g9qeynnyk2zje7"
	listIDs   = "`entail session ls` lists them"
)

// quoted is how an error begins to quote a text.
func quoted(s string) string {
	return strings.TrimSuffix(strconv.Quote(s[:min(len(s), 60)]), `"`)
}

func each(values []string, says ...string) []wrong {
	var out []wrong
	for _, v := range values {
		out = append(out, bad(v, append([]string{quoted(v)}, says...)...))
	}
	return out
}

// sessions are what no argument takes that names a session.
func (w *badWorld) sessions() []wrong {
	out := each(w.noIDs(), "not a session id", listIDs)
	for _, id := range []string{unknownID, "ff" + unknownID[2:], w.idle + "-01arz3ndektsv4rrffq69g5fav"} {
		out = append(out, bad(id, id, "no such session", listIDs))
	}
	return out
}

// noIDs are what no session is called.
func (w *badWorld) noIDs() []string {
	return []string{
		"", "abc", "a.b", "*", ">", "a b", " " + w.idle, w.idle + "\n", "a\tb\x01", strings.Repeat("a", 300), strings.ToUpper(w.idle), w.idle + ".>",
		w.idle + "-", w.idle + "-x", "\xff", "-f", strings.Repeat("x", 64<<10),
	}
}

// ids is sessions for a flag, whose empty value is none.
func (w *badWorld) ids() []wrong { return w.sessions()[1:] }

func prompts() []wrong {
	const material = "a file of the workspace"
	return []wrong{
		bad("", "the prompt is empty", "give it as an argument, or - to read it"), bad(" \t\n", "the prompt is empty", "- to read it"),
		bad("a\xffb", "the prompt is not UTF-8", "give it as text"),
		bad(strings.Repeat("x", 512<<10+1), "524289 bytes", "at most 524288 fit", material),
		// These fit, until their control characters are written as JSON: into a
		// record, and into a request.
		bad(strings.Repeat("\x01", 160<<10), "983|984|163840 bytes", "at most 786432 fit|into one record", material+"|shorten"),
		bad(strings.Repeat("\x01", 500<<10), "3072|512000 bytes", "carries 2097152|into one record", material+"|shorten"),
		{value: "-", says: []string{"the prompt is empty", "- to read it"}},
		{value: "-", stdin: strings.Repeat("x", 2<<20), says: []string{"1048576 bytes", "at most 524288 fit", material}},
	}
}

func words(available ...string) []wrong {
	return each([]string{"wide", "READ-ONLY", " never", "a\x01b", "", strings.Repeat("x", 64<<10)}, available...)
}

func numbers(help string, outside ...string) []wrong {
	out := each([]string{"many", "1.5", "0x", ""}, help)
	for _, v := range outside {
		out = append(out, bad(v, v, "use|run|give|there are"))
	}
	return out
}

func presets() []wrong {
	return append(each([]string{"wide", "READ-ONLY", "a.b", "a\x01b", "custom", strings.Repeat("x", 64<<10)}, "unknown preset", "available", "workspace-write"),
		wrong{value: "auto", exit: exitFailed, says: []string{`preset "auto" needs a reviewer`, "--reviewer"}})
}

// inputs gives, for an argument or a flag of a command, what it refuses. What
// stands under "command input" goes before what stands under the input alone.
func (w *badWorld) inputs() map[string][]wrong {
	const help = "--help` says what it takes"
	tooWhy := []wrong{bad(strings.Repeat("x", 4<<10+1), "4097 bytes", "at most 4096 fit", "say it shorter")}
	newDirs := []wrong{
		bad("", "has no name", "name a new directory"), bad("sub", "sub exists", "name a new directory"), bad("file", "file exists", "name a new directory"),
		bad("no/where", "no is no directory", "name a new directory"), bad("file/x", "file", "name a new directory"),
	}
	out := map[string][]wrong{
		"SESSION": w.sessions(), "--root": w.ids(), "--parent": w.ids(), "--after": w.ids(),
		"CALL": append(each([]string{"", "first", "1.1", "0.1.0", "1.1.0.1", "1.1.-1", "a\x01b", strings.Repeat("1", 300)}, "TURN.STEP.INDEX, such as 1.2.0", "`entail session tail` lists them"),
			bad("7.7.7", `no call "7.7.7"`, "`entail session tail")),
		"PROMPT": prompts(), "MESSAGE": prompts(),
		"QUESTION": append(each([]string{"a\x01b", strings.Repeat("x", 257)}, "give 1 to 256 bytes without control characters"),
			wrong{value: "ask-9.9.9-9", exit: exitFailed, says: []string{`"ask-9.9.9-9"`, "never asked", "`entail approvals ls`"}}),
		"--id": append(each([]string{"", "a\x01b", strings.Repeat("x", 257)}, "give 1 to 256 bytes without control characters"), bad("entail/x", "the coordinators' own", "give another")),
		"PATH": each([]string{"nothing", "defaults.nothing", "caps.depth.x", "", "..", "a\x01b", strings.Repeat("x", 64<<10)}, "unknown setting", "`entail config get` lists"),
		"VALUE": {
			bad("many", `"caps.depth" to "many"`, "`entail config get`"), bad(`"2"`, `"caps.depth" to "2"`, "`entail config get`"), bad("-1", `"caps.depth" to -1`, "at least 0"),
			bad("1.5", `"caps.depth" to 1.5`, "`entail config get`"), bad("{", `"caps.depth" to "{"`, "`entail config get`"), bad("true", `"caps.depth" to true`, "`entail config get`"),
			bad("", `"caps.depth" to ""`, "`entail config get`"),
		},
		"WORKER":         each([]string{"", "a.b", "*", ">", "a b", "a\x01b", "\u00e9", strings.Repeat("x", 300)}, "give one word, as `entail worker ls` shows it"),
		"--workspace":    append(each([]string{"Files", "a b", "a=b", "nfs:files", "host:", ":files", "a\x01b", strings.Repeat("x", 65)}, "--workspace", "give a word|available: shared, host"), bad("files", "--cwd", "the whole path that the directory has on the workers")),
		"--worker-label": each([]string{"GPU", "a b", "a\x01b", strings.Repeat("x", 65)}, "--worker-label", "lower-case letters"),
		"--require-tier": words("use namespaces|uid|landlock"),
		"--grace":        append(each([]string{"soon", "5", "", "1h1"}, help), bad("-1s", "grace -1s", "give 0s to 24h"), bad("25h", "grace 25h", "give 0s to 24h")),
		"SHELL":          each([]string{"", "tcsh", "BASH", "a\x01b"}, "use bash, zsh, fish or powershell"),
		"DIR":            newDirs,

		"--sandbox": words("use read-only|workspace-write|danger-full-access"), "--default-sandbox": words("read-only|"), "--approvals": words("use ask|never"),
		"--surface": words("use none|any"), "--reviewer": words("use none|delegate-only"), "--origin": words("use user|subagent|import"), "--output": words("use text or json"),
		"--preset": presets(), "--label": each([]string{"a\x01b", "a\nb", "a\u0085b", "a\xffb", strings.Repeat("x", 257)}, "give 1 to 256 bytes without control characters"),
		"--cwd": append(places(), bad("a\nb", `a\nb`, "give the directory to work in")),
		"--model": {
			bad("", "no model", "--model scripted:FILE, openai:NAME"), bad("gpt", `"gpt"`, "openai:NAME"), bad("nope:x", `"nope:x"`, "openai:NAME"),
			bad("openai:", `"openai:"`, "the endpoint's name of a model"), bad("openai:a\x01b", `"openai:a\x01b"`, "without spaces"), bad("openai:"+strings.Repeat("x", 300), "openai:xxx", "1 to 200 bytes"),
			bad("scripted:", "script", "scripted:FILE"), bad("scripted:missing", "missing", "scripted:FILE"), bad("scripted:sub", "sub is no plain file", "scripted:FILE"),
			bad("scripted:empty", "empty", "root|sessions"), bad("scripted:wrong.yaml", "wrong.yaml:3:30", `unknown tool "fly", want one of read, write`), bad("scripted:large.yaml", "large.yaml", "bytes"),
		},
		"--reason": tooWhy, "session release --reason": append(tooWhy, bad("", "a release needs a reason", "give it with --reason")),
		"--export": {
			bad("missing", "missing", "`entail session export` wrote"), bad("file", "file", "`entail session export` wrote"), bad("sub", "no .jsonl files", "`entail session export` wrote"),
		},
		"--limit": numbers(help, "-1"), "--from": numbers(help), "--follow": each([]string{"perhaps", "2"}, help), "--keep": each([]string{"perhaps", "2"}, help),
		"--step":    append(numbers(help, "0", "11", "-1")[:3], bad("0", "no step 0", "there are 1 to 10"), bad("11", "no step 11", "there are 1 to 10")),
		"--lease":   append(each([]string{"soon", "5", "", "1h1"}, help), bad("1ms", "lease 1ms", "between 500ms and 10m"), bad("-1s", "lease -1s", "between 500ms and 10m"), bad("11m", "lease 11m", "between 500ms and 10m")),
		"--workers": numbers(help, "0", "-1", "65"), "--port": numbers(help, "-1", "65536"), "--log-level": each([]string{"LOUD", "", "debug2"}, help),
		"--sync-interval": each([]string{"never", "", "0s", "-1s", "5"}, "use a duration such as 1s, or always"),
		"--only":          each([]string{"", "more", "APPEND", "append r3"}, "--only", "joined by commas"),
		"--otlp-endpoint": each([]string{"collector", "ftp://collector/v1", "http://", "://", "http://a b"}, "use a URL such as http://127.0.0.1:4318/v1/traces"),
		"--base-url":      append(each([]string{"host", "ftp://host/v1", "http://"}, "--base-url", "want one like https://host/v1"), bad("://", "is not a URL", "want one like")),
		"--api-key-file": {
			bad("missing", "missing", "name the file that holds the key"), bad("sub", "sub is no plain file", "name the file"), bad("empty", "empty is empty", "name the file"),
			bad("large.yaml", "large.yaml is longer than 65536 bytes", "name the file"),
		},
		"--http": each([]string{"8080", "127.0.0.1:many", ":70000"}, "--http", "such as 127.0.0.1:8080"),
		"up --model": append(each([]string{"gpt", "nope:x", "openai:"}, "openai:NAME|the endpoint's name of a model"),
			bad("openai:x", `no key for model "openai:x"`, "OPENAI_API_KEY", "--api-key-file"), bad("scripted:story.yaml", "scripted models are always offered", "openai:NAME")),

		"COMMAND": {bad("", "there is no command", "give one behind --"), bad("a\x00b", "NUL", "leave it out")},
		"ARG...":  {bad("a\x00b", "NUL", "leave it out")},
		"--mode":  words("use read-only|workspace-write|danger-full-access"), "--network": words("use deny|loopback|allow"),
		"--require": words("use namespaces|uid|landlock"), "--tier-at-most": words("use namespaces|uid|landlock"),
		"--tree": append(each(w.noIDs()[1:], "--tree", "`entail session ls`"),
			bad(w.idle+"-01arz3ndektsv4rrffq69g5fav", "no root's id", "`entail session ls`")),
		"--timeout": append(each([]string{"soon", "5", "", "1h1"}, help), bad("-1s", "--timeout -1s", "above 0")),
		"--facts":   {bad("sub", "--facts", "name a file to write"), bad("no/where", "--facts", "name a file to write"), bad("a\x00b", "--facts", "name a file to write")},

		"doctor --cwd": places(), "sandbox exec --cwd": places(),

		"keys init --brokers":      append(each([]string{"a b", "nats://n1", "n1:4222", "n1/x", "a@b"}, "--brokers", "give one such as nats1"), bad("", "--brokers names nobody", "give at least one"), bad("n1,n1", `"n1" twice`, "give each once")),
		"keys init --coordinators": append(members(), bad("", "--coordinators names nobody", "give at least one"), bad("c1,c1", `"c1" twice`, "give each once")),
		"keys init --workers":      append(members(), bad("", "--workers names nobody", "give at least one"), bad("w1,w1", `"w1" twice`, "give each once")),
		"keys init --partitions":   numbers(help, "0", "-1", "257"),
	}
	maps.Copy(out, w.shared())
	return out
}

// places are what no directory to work in can be called.
func places() []wrong {
	const wayBack = "name the directory to work in"
	return []wrong{
		bad("", "--cwd is empty", wayBack), bad("nowhere", "nowhere does not exist", "make it, or name another"), bad("dangling", "dangling does not exist", "name another"),
		bad("file", "file is a file", wayBack), bad("/", "--cwd is /", wayBack), bad("file/x", "file/x: not a directory", wayBack),
		bad("a\x00b", "--cwd", wayBack), bad(strings.Repeat("x", 5000), "file name too long", wayBack),
	}
}

// members are what no member of a fleet can be called.
func members() []wrong {
	return each([]string{"a.b", "*", ">", "A", "a b", "a/b"}, "lower-case letters")
}

// shared are the inputs of every command that says how a deployment is found, and
// how this command is configured.
func (w *badWorld) shared() map[string][]wrong {
	missing := func(w wrong) wrong { w.exit = exitUnavailable; return w }
	const another = "--dir or --token-file"
	return map[string][]wrong{
		"--dir": {
			bad("", "--dir is empty", "name the data directory"), missing(bad("missing", "missing/token does not exist", "`entail up`", another)),
			missing(bad("file", "file/token: not a directory", another)),
		},
		"run --dir": {bad("", "--dir is empty", "name the data directory"), bad("file", "file is a file", "name a directory with --dir")},
		"up --dir":  {bad("", "--dir is empty", "name the data directory"), bad("file", "file is a file", "name a directory with --dir")},
		"--token-file": {
			missing(bad("missing", "missing does not exist", "`entail up`", another)), missing(bad("sub", "sub: it is no plain file", another)),
			missing(bad("loud", "loud has mode 0644", "chmod 600")), missing(bad("empty", "empty", another)), missing(bad("half", "half", another)),
		},
		"--server": {
			missing(bad("nats://127.0.0.1:1", "nats://127.0.0.1:1", "is it running?", "--server")),
			missing(bad(w.old, tooOldText, "--server")), missing(bad(w.plain, "has JetStream off", "start nats-server with jetstream enabled")),
			missing(bad("127.0.0.1:1", "127.0.0.1:1", "is it running?", "--server")),
			bad("http://127.0.0.1:1", `"http://127.0.0.1:1"`, "such as nats://127.0.0.1:4222"), bad("nats://", `"nats://"`, "such as nats://127.0.0.1:4222"), bad("a b", `a b"`, "such as nats://127.0.0.1:4222"),
			bad("nats://me:hunter2@127.0.0.1:1", "nats://me:xxxxx@127.0.0.1:1", "the token file"), bad("nats://me:hunter2@127.0.0.1:x", "not shown", "such as nats://127.0.0.1:4222"),
		},
		"--config": {
			bad("missing", "missing", "--config"), bad("", "read configuration", "--config"), bad("sub", "sub", "--config"), bad("half", "half is not YAML", "`entail config effective`"),
			bad("story.yaml", `unknown setting "sessions.root" in story.yaml`, "known are dir, server"), bad("deep.yaml", `unknown setting "dir.x" in deep.yaml`, "known are dir"),
		},
	}
}

// own are the flags of run that speak of a server that it starts itself, each
// with a value that makes sense.
func own() []string {
	flags := map[string]string{
		"base-url": "http://127.0.0.1:1/v1", "api-key-file": "story.yaml", "default-sandbox": "read-only", "reviewer": "none", "lease": "5s", "workers": "1",
		"port": "0", "sync-interval": "1s", "otlp-endpoint": "http://127.0.0.1:1/v1/traces",
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		out = append(out, "--"+name+"="+flags[name])
	}
	return out
}
