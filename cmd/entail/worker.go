package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/policy"
)

func newWorker(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "List workers, and take them out of service and back",
		Long: `Workers drive turns and run what is allowed. These commands list those that are
alive, and order what they take on:

  cordon    the worker takes no session that it does not drive already
  drain     it begins no turn either, and hands over those that run once their
            time is up: another worker goes on with them at once
  uncordon  it takes work again

An order is kept by the worker's name, with who gave it and when. It holds for every
run of that worker, so a cordoned one that is started anew is still cordoned.`,
		Example: `  entail worker ls
  entail worker drain w2 --grace 5m --reason "new kernel"
  entail worker uncordon w2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newWorkerLs(a), newWorkerDrain(a), newWorkerCordon(a), newWorkerUncordon(a), newWorkerHistory(a))
	return cmd
}

func newWorkerLs(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the workers that are alive, and what each drives",
		Long: `List the workers that are alive: state, how many sessions each drives and may drive
at once, what it holds calls by, version, since when it runs and how long ago it gave
its last sign of life. Below each stand the sessions that it drives, those that it was
pointed at and does not drive, with the reason, and what was ordered of it. A worker
that is not alive is listed if it was cordoned or drained by name.`,
		Example: `  entail worker ls
  entail worker ls -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(d *deployment) error {
				list, err := d.workers(cmd.Context())
				if err != nil {
					return err
				}
				for _, w := range list {
					if err := a.printer.value(w, func() { a.worker(w) }); err != nil {
						return err
					}
				}
				if len(list) == 0 {
					a.printer.warn("no worker is alive: nothing is driven until one is; `entail up` runs some, so does the command worker of a fleet")
				}
				return nil
			})
		},
	}
}

func (d *deployment) workers(ctx context.Context) ([]client.WorkerSummary, error) {
	var out client.WorkerListReply
	err := d.Call(ctx, client.MethodWorkerList, d.head, &out)
	return out.Workers, err
}

// worker writes a worker for people.
func (a *app) worker(w client.WorkerSummary) {
	const unknown = "unknown" // a worker of an earlier build says less
	if w.Alive {
		a.printer.line("%-16s %-9s %d/%d  tier %s (%s)  version %s  up %s  seen %s ago  settings %d", w.Name, w.State, len(w.Sessions), w.Concurrency,
			cmp.Or(string(w.Tier), unknown), cmp.Or(string(w.Enforcement), unknown), cmp.Or(w.Version, unknown),
			span(time.Since(time.UnixMilli(w.Since))), span(time.Duration(w.Renewed)*time.Millisecond), w.Revision)
	} else {
		a.printer.line("%-16s %s", w.Name, a.printer.paint(yellow, "not alive"))
	}
	if len(w.Labels) > 0 {
		a.printer.line("  labels %s", strings.Join(w.Labels, " "))
	}
	if len(w.Workspaces) > 0 {
		a.printer.line("  workspaces %s", strings.Join(w.Workspaces, " "))
	}
	if o := w.Order; o != nil && o.State != client.WorkerReady {
		why := ""
		if o.Reason != "" {
			why = ": " + clean(o.Reason)
		}
		a.printer.line("  %s", a.printer.paint(yellow, fmt.Sprintf("ordered: %s by %s %s at %s%s", o.State, o.By.Kind, o.By.ID, time.UnixMilli(o.At).Format(time.RFC3339), why)))
	}
	for _, id := range w.Sessions {
		a.printer.line("  drives %s", id)
	}
	for _, wait := range w.Waits {
		a.printer.line("  leaves %s: %s", wait.Session, clean(wait.Why))
	}
}

// span is a length of time for people.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 24*time.Hour:
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%dd%s", d/(24*time.Hour), (d % (24 * time.Hour)).Round(time.Hour))
}

// orderFlags are what every order takes.
type orderFlags struct{ reason string }

func (f *orderFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for whoever looks at the list")
}

func newWorkerCordon(a *app) *cobra.Command {
	var f orderFlags
	cmd := &cobra.Command{
		Use:   "cordon WORKER",
		Short: "Have a worker take no new sessions",
		Long: `Have a worker take no session that it does not drive already. It goes on with those
until they end, wait or are idle. The command returns when the worker says that it
obeys. A worker that is not alive is cordoned when it starts.`,
		Example: `  entail worker cordon w2 --reason "disk is full"`,
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(d *deployment) error {
				_, err := a.order(cmd.Context(), d, client.WorkerSetRequest{Worker: args[0], State: client.WorkerCordoned, Reason: f.reason})
				return err
			})
		},
	}
	f.register(cmd)
	return cmd
}

func newWorkerUncordon(a *app) *cobra.Command {
	var f orderFlags
	cmd := &cobra.Command{
		Use:     "uncordon WORKER",
		Short:   "Have a worker take work again",
		Long:    "Have a worker that was cordoned or drained take work again.",
		Example: "  entail worker uncordon w2",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(d *deployment) error {
				_, err := a.order(cmd.Context(), d, client.WorkerSetRequest{Worker: args[0], State: client.WorkerReady, Reason: f.reason})
				return err
			})
		},
	}
	f.register(cmd)
	return cmd
}

func newWorkerDrain(a *app) *cobra.Command {
	var f orderFlags
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "drain WORKER",
		Short: "Have a worker hand over what it drives",
		Long: `Have a worker take no session and begin no turn, and wait until it drives nothing.
Turns that run go on for --grace. Then each is handed over at the next point where
nothing of it runs, and another worker goes on with it at once; a call that is still
running a few seconds later is ended, and its outcome is unknown. The worker stays
up and drained until it is uncordoned. Interrupting the command takes nothing back.`,
		Example: `  entail worker drain w2
  entail worker drain w2 --grace 0s --reason "this host goes down"`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(d *deployment) error {
				in := client.WorkerSetRequest{Worker: args[0], State: client.WorkerDraining, Grace: policy.Duration(grace), Reason: f.reason}
				w, err := a.order(cmd.Context(), d, in)
				if err != nil || !w.Alive {
					return err
				}
				return a.drained(cmd.Context(), d, w)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().DurationVar(&grace, "grace", 5*time.Minute, "how long turns that run may go on, at most 24h")
	return cmd
}

func newWorkerHistory(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "history WORKER",
		Short:   "Show what was ordered of a worker",
		Long:    "Show every kept order of a worker, oldest first: when, by whom, what, and why.",
		Example: "  entail worker history w2",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(d *deployment) error {
				var out client.WorkerHistoryReply
				if err := d.Call(cmd.Context(), client.MethodWorkerHistory, client.WorkerRequest{Head: d.head, Worker: args[0]}, &out); err != nil {
					return err
				}
				for _, o := range out.Orders {
					err := a.printer.value(o, func() {
						a.printer.line("%s", strings.TrimRight(fmt.Sprintf("%s  %s %s  %s  %s", time.UnixMilli(o.At).Format(time.RFC3339), o.By.Kind, o.By.ID, o.State, clean(o.Reason)), " "))
					})
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// order sends an order and says what came of it.
func (a *app) order(ctx context.Context, d *deployment, in client.WorkerSetRequest) (client.WorkerSummary, error) {
	in.Head = d.head
	var out client.WorkerSetReply
	if err := d.Call(ctx, client.MethodWorkerSet, in, &out); err != nil {
		return out.Worker, err
	}
	switch {
	case !out.Worker.Alive && in.State == client.WorkerReady:
		a.printer.warn("worker %s is not alive", in.Worker)
	case !out.Worker.Alive:
		a.printer.warn("worker %s is not alive: it is %s when it starts; `entail worker ls` lists those that are alive", in.Worker, in.State)
	case !out.Confirmed:
		a.printer.warn("worker %s has not said yet that it obeys; `entail worker ls` shows when it has", in.Worker)
	}
	return out.Worker, a.printer.value(out.Worker, func() {
		a.printer.line("worker %s is to be %s, and drives %d", in.Worker, in.State, len(out.Worker.Sessions))
	})
}

// drained waits until a worker drives nothing, or is gone.
func (a *app) drained(ctx context.Context, d *deployment, w client.WorkerSummary) error {
	const look = 200 * time.Millisecond
	for {
		list, err := d.workers(ctx)
		if err != nil {
			return err
		}
		now := client.WorkerSummary{}
		for _, one := range list {
			if one.Name == w.Name {
				now = one
			}
		}
		switch {
		case !now.Alive || now.Incarnation != w.Incarnation:
			a.printer.warn("worker %s has ended; what it drove is taken over", w.Name)
			return nil
		case now.State == client.WorkerDraining && len(now.Sessions) == 0:
			return a.printer.value(now, func() { a.printer.line("worker %s is drained", w.Name) })
		case now.Order == nil || now.Order.State != client.WorkerDraining:
			return fmt.Errorf("worker %s is not to be drained any more: somebody else has ordered otherwise", w.Name)
		}
		if !delay.For(ctx, look) {
			return context.Cause(ctx)
		}
	}
}
