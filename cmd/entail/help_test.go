package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// help runs a command with --help.
func help(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, err: &out, lookup: func(string) (string, bool) { return "", false }}
	if exit := a.execute(append(args, "--help")); exit != exitDone {
		t.Fatalf("entail %v --help exits with %d: %s", args, exit, out.String())
	}
	return out.String()
}

func TestHelpNamesTheFlags(t *testing.T) {
	t.Parallel()
	tests := []struct {
		command string
		flags   []string
	}{
		{"run", []string{
			"--dir", "--server", "--cwd", "--model", "--base-url", "--api-key-file", "--token-file", "--sandbox", "--approvals",
			"--preset", "--surface", "--default-sandbox", "--reviewer", "--lease", "--label", "--output",
		}},
		{"up", []string{"--dir", "--model", "--base-url", "--api-key-file", "--token-file", "--default-sandbox", "--reviewer", "--lease", "--output"}},
		{"session new", []string{"--cwd", "--model", "--sandbox", "--approvals", "--preset", "--surface", "--label", "--server", "--token-file"}},
	}
	for _, tt := range tests {
		t.Run(tt.command, func(t *testing.T) {
			t.Parallel()
			text := help(t, strings.Fields(tt.command)...)
			for _, flag := range tt.flags {
				if !strings.Contains(text, flag+" ") {
					t.Errorf("entail %s --help does not show %s", tt.command, flag)
				}
			}
			if !strings.Contains(text, "-o, ") {
				t.Errorf("entail %s --help does not show -o", tt.command)
			}
		})
	}
}

// A client never chooses what is the deployment's.
func TestDeploymentFlagsBelongToServers(t *testing.T) {
	t.Parallel()
	root := newRoot(&app{})
	walk(root, func(c *cobra.Command) {
		if slices.Contains([]string{"up", "run", "demo"}, c.Name()) {
			return
		}
		for _, flag := range []string{"reviewer", "lease", "default-sandbox", "base-url", "api-key-file"} {
			if c.Flags().Lookup(flag) != nil {
				t.Errorf("%s has --%s", c.CommandPath(), flag)
			}
		}
	})
}

func TestCommandsAreAllThere(t *testing.T) {
	t.Parallel()
	commands := []string{
		"demo", "up", "run", "bench", "keys init", "session new", "session ls", "session show", "session tree", "session tail", "session fork",
		"session export", "session release", "send", "interrupt", "cancel", "approvals ls", "approvals show", "approve", "deny", "settle", "policy get", "policy set", "policy explain",
		"explain", "config get", "config set", "config history", "config effective", "worker ls", "worker cordon", "worker drain", "worker uncordon", "worker history", "verify", "doctor", "sandbox exec", "version", "completion",
	}
	root := newRoot(&app{})
	walk(root, func(c *cobra.Command) {
		names := map[string]bool{}
		for _, below := range c.Commands() {
			if names[below.Name()] {
				t.Errorf("%s %s is there twice", c.CommandPath(), below.Name())
			}
			names[below.Name()] = true
		}
	})
	for _, name := range commands {
		cmd, rest, err := root.Find(strings.Fields(name))
		if err != nil || len(rest) > 0 || cmd == root {
			t.Errorf("no command %q: %v", name, err)
		}
	}
}

func TestEveryCommandTeaches(t *testing.T) {
	t.Parallel()
	walk(newRoot(&app{}), func(c *cobra.Command) {
		if c.Short == "" || c.Long == "" || !strings.Contains(c.Example, "entail") {
			t.Errorf("%s lacks a short text, a long one or an example", c.CommandPath())
		}
	})
}

func TestConfigurableFlagsExist(t *testing.T) {
	t.Parallel()
	root := newRoot(&app{})
	for _, key := range configurable() {
		found := false
		walk(root, func(c *cobra.Command) {
			found = found || c.Flags().Lookup(key) != nil || c.PersistentFlags().Lookup(key) != nil
		})
		if !found {
			t.Errorf("setting %q is no command's flag", key)
		}
	}
}

func TestSettleWantsOneWord(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{}, {"--executed", "--not-executed"}} {
		got := command{args: append([]string{"settle", "0001m8pgrjs8m9g9qeynnyk2zje7", "1.1.0"}, flags...)}.run()
		if got.exit != exitUsage || !strings.Contains(got.err, "--executed or --not-executed") {
			t.Errorf("%v: exit %d, %s", flags, got.exit, got.err)
		}
	}
}
