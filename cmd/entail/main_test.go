package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/entail-fleet/entail/agent/model/modeltest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"entail": func() { os.Exit(Main()) }})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "await": untilDone, "endpoint": endpoint,
		},
	})
}

// setup gives a script a home without an Entail configuration of its own.
func setup(env *testscript.Env) error {
	env.Setenv("ENTAIL_LEASE", "1s")
	env.Setenv("USER", "tester")
	return nil
}

// exits runs a command and wants its exit code: exits 3 entail run ...
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%v exited with %d, want %d", args[1:], got, want)
	}
}

// awaitLimit is how long a script waits for anything.
const awaitLimit = 30 * time.Second

// untilDone is await: it runs a command again and again until it succeeds.
func untilDone(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), awaitLimit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ts.Exec(args[0], args[1:]...) != nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			ts.Fatalf("%v never succeeded", args)
		}
	}
}

// endpointKey is the one key that the local endpoint serves.
const endpointKey = "sk-entail-test-0123456789abcdef"

// endpoint starts a local chat-completions server that plays a scene and sets
// OPENAI_URL: endpoint repair.
func endpoint(ts *testscript.TestScript, _ bool, args []string) {
	scene, ok := scenes()[args[0]]
	if !ok {
		ts.Fatalf("no scene %q", args[0])
	}
	h := modeltest.NewHandler(scene)
	h.Key = endpointKey
	mux := http.NewServeMux()
	mux.Handle("/", h)
	srv := httptest.NewServer(mux)
	ts.Defer(srv.Close)
	ts.Setenv("OPENAI_URL", srv.URL+"/v1")
	ts.Setenv("ENDPOINT_KEY", endpointKey)
}
