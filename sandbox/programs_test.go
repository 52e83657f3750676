//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// withPrograms is for make programs: what it turns on takes other programs than Go, and
// a minute or more.
var withPrograms = flag.Bool("programs", false, "run what ordinary programs do behind the fence")

// programsPath is where calls look for programs, and so where the tests do.
const programsPath = "/usr/local/bin:/usr/bin:/bin"

// A program is what people run, and where it does not work behind the fence.
type program struct {
	name  string
	mode  session.SandboxMode // workspace-write if empty
	needs []string            // besides bash and coreutils
	line  string              // fails if the program does not do its work
	fails failing             // as is known and documented
	plain bool                // the network is of no interest: allow alone
}

// failing is where a program is known to fail, and how. Where it does not fail as is
// said, docs/sandbox.md is out of date.
type failing struct {
	tiers    []session.Tier
	networks []session.Network
	says     string // an expression that its output matches
}

func (f failing) here(tier session.Tier, network session.Network) bool {
	return slices.Contains(f.tiers, tier) || slices.Contains(f.networks, network)
}

// Why programs fail.
var (
	// Only a mount namespace gives a call a /dev/shm of its own.
	withoutSharedMemory = failing{
		tiers: []session.Tier{session.TierUID, session.TierLandlock}, says: `PermissionError: \[Errno 13\]`,
	}
	withoutNetwork    = failing{networks: []session.Network{session.NetworkDeny}, says: `PermissionError: \[Errno 1\]|EPERM|Operation not permitted`}
	withoutUnixSocket = failing{tiers: session.Tiers(), says: `PermissionError: \[Errno 1\]`}
	withoutTerminals  = failing{tiers: session.Tiers(), says: `PermissionError: \[Errno 13\]`}
	withoutNamespaces = failing{tiers: session.Tiers(), says: `Operation not permitted`}
	withoutWriting    = failing{tiers: session.Tiers(), says: `Permission denied|Read-only file system`}
)

// goTools is what the go command is told: all that it writes is in the temp
// directory, and it fetches nothing.
const goTools = `export GOCACHE=$TMPDIR/cache GOPATH=$TMPDIR/go GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off CGO_ENABLED=0
`

// repository makes a repository with one commit.
const repository = `
	git init -q -b main r && cd r
	git config user.name n && git config user.email n@localhost
	echo one >f && git add f && git commit -qm first
`

// programs is the table. Each line runs in an empty directory of its own, and in a
// shell that stops at the first failure.
func programs() []program {
	return []program{
		{name: "git commit and gc", needs: []string{"git"}, line: repository + `
			git gc -q; git fsck --strict 2>&1; test "$(git log --format=%s)" = first`},
		{name: "git worktree", needs: []string{"git"}, line: repository + `
			git worktree add -q ../w -b side; cd ../w; echo two >g; git add g; git commit -qm second
			test "$(git log --format=%s | xargs)" = "second first"`},
		{name: "git clone of a local repository", needs: []string{"git"}, line: repository + `
			cd ..; git clone -q r linked; git clone -q --no-local r copied
			cmp linked/f copied/f`},
		{name: "go build and go test", needs: []string{"go"}, plain: true, line: goTools + `
			printf 'module tiny\n\ngo 1.24\n' >go.mod
			printf 'package main\n\nfunc main() { println("ran") }\n' >main.go
			printf 'package main\n\nimport "testing"\n\nfunc TestTiny(t *testing.T) { t.Log("tested") }\n' >main_test.go
			go build -o tiny .; ./tiny 2>&1 | grep -x ran
			go test -v . | grep tested`},
		{name: "gcc and make", needs: []string{"gcc", "make"}, line: `
			printf '#include <stdio.h>\nint main(void) { puts("ran"); return 0; }\n' >a.c
			printf 'a: a.c\n\tgcc -pipe -o a a.c\n' >Makefile
			make -s; test "$(./a)" = ran; make -q`},
		{name: "tar keeps modes", needs: []string{"tar"}, line: `
			mkdir -p t/d; echo x >t/f; chmod 640 t/f; chmod 1777 t/d; touch -d @1000000000 t/f
			tar -cpf t.tar t; mkdir o; tar -xpf t.tar -C o
			test "$(stat -c %a:%Y o/t/f) $(stat -c %a o/t/d)" = "640:1000000000 1777"`},
		{name: "cp -a", line: `
			mkdir t; echo x >t/f; ln -s f t/l; ln t/f t/h; chmod 400 t/f; touch -d @1000000000 t/f
			cp -a t o
			test "$(stat -c %a:%h:%Y o/f)" = 400:2:1000000000; test "$(readlink o/l)" = f`},
		{name: "sqlite3 with a write-ahead log", needs: []string{"sqlite3"}, line: `
			test "$(sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values(1),(2); select sum(x) from t' | xargs)" = "wal 3"
			test "$(sqlite3 db 'pragma integrity_check')" = ok`},
		{name: "node with a forked process", needs: []string{"node"}, line: `
			cat >f.js <<'END'
				const { fork } = require('child_process');
				if (process.argv[2]) process.on('message', m => { process.send(m + 1); process.disconnect(); });
				else { const c = fork(__filename, ['child']); c.on('message', m => console.log('got', m)); c.send(41); }
END
			node f.js | grep -x 'got 42'`},
		{name: "node with worker threads", needs: []string{"node"}, line: `
			cat >w.js <<'END'
				const { Worker, isMainThread, parentPort } = require('worker_threads');
				if (isMainThread) new Worker(__filename).on('message', m => console.log(m));
				else parentPort.postMessage('from a thread');
END
			node w.js | grep -x 'from a thread'`},
		{name: "node with a server on loopback", needs: []string{"node"}, fails: withoutNetwork, line: `
			cat >s.js <<'END'
				const http = require('http');
				const s = http.createServer((q, a) => a.end('served')).listen(0, '127.0.0.1', () =>
					http.get({ host: '127.0.0.1', port: s.address().port }, a => { a.pipe(process.stdout); a.on('end', () => s.close()); }));
END
			node s.js 2>&1 | tee out; grep -x served out`},
		{name: "python3 asyncio, woken by a thread", needs: []string{"python3"}, line: `
			python3 - <<'END' | grep -x woken
import asyncio, threading
async def main():
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(event.set)).start()
    await asyncio.wait_for(event.wait(), 20)
    print('woken')
asyncio.run(main())
END`},
		{name: "python3 subprocess and threads", needs: []string{"python3"}, line: `
			python3 - <<'END'
import concurrent.futures, subprocess
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert list(pool.map(lambda n: subprocess.check_output(['echo', str(n)]), range(4)))[3] == b'3\n'
END`},
		{name: "python3 multiprocessing.Pool", needs: []string{"python3"}, fails: withoutSharedMemory, line: `
			cat >p.py <<'END'
import multiprocessing
if __name__ == '__main__':
    with multiprocessing.Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
END
			python3 p.py`},
		{name: "POSIX shared memory", needs: []string{"python3"}, fails: withoutSharedMemory, line: `
			python3 - <<'END'
from multiprocessing import shared_memory
m = shared_memory.SharedMemory(create=True, size=16)
m.buf[0] = 1
m.close()
m.unlink()
END`},
		{name: "a server on a unix socket", needs: []string{"python3"}, fails: withoutUnixSocket, line: `
			python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("s"); s.listen()'`},
		{name: "a terminal of its own", needs: []string{"python3"}, fails: withoutTerminals, line: `
			python3 -c 'import os; os.openpty()'`},
		{name: "unshare", needs: []string{"unshare"}, fails: withoutNamespaces, line: `unshare --user --mount true`},
		{name: "strace of a child", needs: []string{"strace"}, line: `
			echo x >f; strace -f -o trace -e trace=openat bash -c 'cat f'; grep '"f", O_RDONLY' trace`},
		{name: "inotify", needs: []string{"inotifywait"}, line: `
			mkdir d; timeout 20 inotifywait -q -e close_write d >out & waiter=$!
			while kill -0 $waiter 2>/dev/null; do echo x >d/f; done
			grep CLOSE_WRITE out`},
		{name: "bash with here-documents and process substitution", line: `
			diff <(printf 'a\nb\n') - <<END
a
b
END
			x=$(head -c 200000 /dev/zero | tr '\0' x)
			test "$(wc -c <<<"$x")" = 200001`},
		{name: "sort of more than its memory", line: `
			seq 200000 | sort -S 100K -rn >s; test "$(head -n 1 s)" = 200000`},
		{name: "a server on loopback with a client", needs: []string{"python3"}, fails: withoutNetwork, line: `
			echo served >f
			python3 -u -m http.server 0 --bind 127.0.0.1 >log 2>&1 & server=$!
			until port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' log) && [ -n "$port" ]; do
				kill -0 $server 2>/dev/null || { cat log; exit 1; }
			done
			exec 3<>/dev/tcp/127.0.0.1/$port; printf 'GET /f HTTP/1.0\r\n\r\n' >&3; grep -x served <&3
			kill $server`},
		{name: "bash, awk, sort and grep", mode: session.ReadOnly, line: `
			printf '2 b\n1 a\n' | sort | awk '{ print $2 }' | grep -n b <(cat) | grep -x 2:b
			test "$(cat <<<x)" = x`},
		{name: "python3", mode: session.ReadOnly, needs: []string{"python3"}, line: `
			test "$(python3 -c 'import json, subprocess; print(json.loads(subprocess.check_output(["echo", "[1]"]))[0])')" = 1`},
		{name: "git status, log and diff", mode: session.ReadOnly, needs: []string{"git"}, line: `
			cd "$HOME/made"; git status --short | grep -x ' M f'; git log --format=%s | grep -x first; git diff | grep -x '+two'`},
		{name: "git commit", mode: session.ReadOnly, needs: []string{"git"}, fails: withoutWriting, line: `
			cd "$HOME/spare"; git commit -qam second`},
		{name: "strace of a child", mode: session.ReadOnly, needs: []string{"strace"}, line: `
			strace -e trace=execve cat /dev/null 2>&1 | grep -F 'execve("'`},
	}
}

// TestPrograms runs ordinary programs in every tier and on every network, as a tree's
// user and as the worker's. Each must do its work unconfined: a failure behind the
// fence shows nothing otherwise.
func TestPrograms(t *testing.T) {
	t.Parallel()
	if !*withPrograms {
		t.Log("NOT RUN: make programs runs it")
		return
	}
	g, path := newGrove(t), programsPath
	if tools := goToolsOf(t, g); tools != "" {
		path = tools + ":" + path
	}
	table := installed(t, path)
	b := bench{g: g, path: path, table: table}
	t.Run("unconfined", b.control)
	for _, tier := range here(t).tiers() {
		for _, owned := range []bool{true, false} {
			if !owned && tier != session.TierNamespaces {
				continue // uid takes a workspace of the tree's, and landlock makes no difference
			}
			for _, network := range session.Networks() {
				if network == session.NetworkLoopback && tier != session.TierNamespaces {
					continue // TestNetworkIsAKnobOfItsOwn: it is refused
				}
				if !owned && network != session.NetworkAllow {
					continue // whose the workspace is has nothing to do with the network
				}
				t.Run(fmt.Sprintf("%s, owned %t, %s", tier, owned, network), func(t *testing.T) {
					t.Parallel()
					b.judge(t, tier, owned, network)
				})
			}
		}
	}
}

// goToolsOf is a directory with the go command that every user can reach.
func goToolsOf(t *testing.T, g grove) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "" // then it is missing
	}
	root := strings.TrimSpace(string(out))
	if os.Getuid() != 0 || sandbox.Reachable(filepath.Join(root, "bin", "go"), userOf(oak)) {
		return filepath.Join(root, "bin")
	}
	own := filepath.Join(g.base, "goroot")
	if out, err := exec.Command("cp", "-a", root, own).CombinedOutput(); err != nil {
		t.Fatalf("copy Go: %v: %s", err, out)
	}
	return filepath.Join(own, "bin")
}

// installed is the part of the table whose programs are here. The rest is not run, and
// where everything must run that is a failure.
func installed(t *testing.T, path string) []program {
	t.Helper()
	var table []program
	var missing []string
	for _, p := range programs() {
		lacks := slices.DeleteFunc(slices.Clone(p.needs), func(name string) bool {
			return slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool {
				_, err := os.Stat(filepath.Join(dir, name))
				return err == nil
			})
		})
		if len(lacks) == 0 {
			table = append(table, p)
			continue
		}
		missing = append(missing, fmt.Sprintf("%s (lacks %s)", p.name, strings.Join(lacks, ", ")))
	}
	if len(missing) == 0 {
		return table
	}
	report := t.Logf
	if os.Getenv("CI") != "" {
		report = t.Errorf
	}
	report("NOT RUN (%d): %s", len(missing), strings.Join(missing, "; "))
	return table
}

// bench is where the programs of the table are tried.
type bench struct {
	g     grove
	path  string
	table []program
}

// open opens a workspace with the repositories that read-only programs work on.
func (b bench) open(t *testing.T, name string, tree session.ID, best session.Tier, owned bool) *sandbox.Workspace {
	t.Helper()
	r, err := sandbox.New(sandbox.Config{Env: []string{"PATH=" + b.path}}.WithBest(best))
	if err != nil {
		t.Fatal(err)
	}
	g := grove{t, b.g.base}
	root := g.dir(name)
	if !owned {
		write(t, filepath.Join(root, "mine"), "")
	}
	ws := g.open(r, root, tree)
	wantDone(t, perform(t, ws, session.WorkspaceWrite, shell(
		"if command -v git >/dev/null; then "+repository+"cd ..; mv r made; echo two >>made/f; cp -a made spare; fi")))
	return ws
}

// control runs the table as the worker's user without a fence.
func (b bench) control(t *testing.T) {
	ws := b.open(t, "unconfined", "", session.TierNamespaces, false)
	terms := policy.DefaultConfinement()
	terms.FullAccessAs = policy.AsWorker
	for i, p := range b.table {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			res, err := ws.PerformOn(t.Context(), session.DangerFullAccess, terms, p.op(i))
			if err != nil || res.Failed {
				t.Errorf("it does not work here at all: %+v, %v", res, err)
			}
		})
	}
}

// judge runs the table in one tier and on one network.
func (b bench) judge(t *testing.T, tier session.Tier, owned bool, network session.Network) {
	t.Helper()
	ws := b.open(t, fmt.Sprintf("%s-%t-%s", tier, owned, network), oak, tier, owned)
	terms := policy.DefaultConfinement()
	terms.Network.ReadOnly, terms.Network.WorkspaceWrite = network, network
	for i, p := range b.table {
		if p.plain && network != session.NetworkAllow {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			res, err := ws.PerformOn(t.Context(), p.confined(), terms, p.op(i))
			if err != nil || res.Code != "" && res.Code != sandbox.CodeDenied {
				t.Fatalf("got %+v, %v", res, err)
			}
			if res.Sandbox.Tier != tier || res.Sandbox.Network != network {
				t.Fatalf("it ran under %+v", res.Sandbox)
			}
			switch fails := p.fails.here(tier, network); {
			case !fails && res.Failed:
				t.Errorf("it does not work: %+v", res)
			case fails && !res.Failed:
				t.Error("it works, and docs/sandbox.md says that it does not")
			case fails && !regexp.MustCompile(p.fails.says).MatchString(res.Output):
				t.Errorf("it fails, but does not say %q: %s", p.fails.says, res.Output)
			}
		})
	}
}

// confined is the mode that a program runs under.
func (p program) confined() session.SandboxMode { return cmp.Or(p.mode, session.WorkspaceWrite) }

// op runs a program of the table.
func (p program) op(number int) sandbox.Op {
	line := "set -euo pipefail\n"
	if p.mode == "" {
		line += fmt.Sprintf("mkdir row%[1]d; cd row%[1]d\n", number)
	}
	return sandbox.Op{Shell: &sandbox.Shell{Command: line + p.line, Timeout: 3 * time.Minute}}
}
