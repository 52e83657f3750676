package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// app is one run of the command line: where it reads and writes, and what its
// flags came to.
type app struct {
	in       io.Reader
	out, err io.Writer
	environ  []string
	lookup   func(string) (string, bool)

	dir, server, tokenFile, output, config string

	layers  layers
	started bool // the arguments were accepted
	printer *printer
	// force ends what a first signal asked to end. It is closed by a second one.
	force chan struct{}
}

// execute runs one command and returns its exit code.
func (a *app) execute(args []string) int {
	a.printer = newPrinter(a, false)
	ctx, stop := a.signals()
	defer stop()
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	if _, typed := errors.AsType[*exitError](err); !typed && !a.started {
		// Cobra's own: an unknown command or flag, or a value of the wrong type.
		err = usagef("%w; `%s --help` says what it takes", err, cmd.CommandPath())
	}
	e := classify(err)
	if !e.quiet {
		a.printer.failure(e)
	}
	return e.exit
}

// signals returns a context that the first SIGINT, SIGTERM or SIGHUP ends. The
// second one closes a.force: what is still stopping is then killed.
func (a *app) signals() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	a.force = make(chan struct{})
	got := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(got, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for _, stage := range []func(){cancel, func() { close(a.force) }} {
			select {
			case <-got:
				stage()
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(got)
		close(done)
		cancel()
	}
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "entail",
		Short: "Run fleets of agents whose authority can only be handed down",
		Long: `Entail runs agents whose authority can only be handed down, never widened by
handing it down: a child agent starts under its parent's restrictions with the
first record of its log, and every tool call is decided in the log and fenced by
the kernel before it has an effect.

Exit codes: 0 done, 1 failed, 2 usage, 3 done with denials, 4 nothing done,
5 children unfinished, 6 deployment unavailable, 7 interrupted or cancelled, 8 a
weaker fence than asked for. Of sandbox exec they are the command's.`,
		Example: `  entail run --model scripted:story.yaml "write the report"
  entail run --model openai:gpt-5 --sandbox workspace-write "make the tests pass"
  entail up
  entail session ls`,
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.NoArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.configure(cmd) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.StringVar(&a.dir, "dir", ".entail", "data directory of the deployment on this machine")
	f.StringVar(&a.server, "server", "", "address of a running deployment's broker; default the token file's")
	f.StringVar(&a.tokenFile, "token-file", "", "file with the credentials of a deployment; default token in --dir")
	f.StringVarP(&a.output, "output", "o", "text", "text for people or json for programs, one line each")
	f.StringVar(&a.config, "config", "", "configuration file; default entail.yaml, if it is there")
	root.AddCommand(
		newDemo(a), newUp(a), newRun(a), newSession(a), newSend(a), newInterrupt(a), newCancel(a),
		newApprovals(a), newApprove(a), newDeny(a), newSettle(a),
		newPolicy(a), newExplain(a), newConfig(a), newWorker(a), newVerify(a), newDoctor(a), newSandbox(a), newBench(a), newKeys(a), newVersion(a), newCompletion(), newProcess(a),
	)
	return root
}

// configure settles every flag of a command from its configuration, and checks
// what all commands share.
func (a *app) configure(cmd *cobra.Command) error {
	if err := a.loadLayers(cmd); err != nil {
		return err
	}
	if a.output != "text" && a.output != "json" {
		return usagef("unknown output %q: use text or json", a.output)
	}
	a.printer = newPrinter(a, a.output == "json")
	a.started = true
	return nil
}
