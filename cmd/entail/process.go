package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/internal/node"
)

// newProcess holds the hidden commands that entail up starts its processes with.
// Nobody types them.
func newProcess(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "process", Hidden: true, Short: "Run one process of the all-in-one server",
		Long:    "Run one process of the all-in-one server. Entail starts these itself.",
		Example: "  entail up",
	}
	level := slog.LevelWarn
	cmd.PersistentFlags().TextVar(&level, "log-level", slog.LevelWarn, "what to log")
	add := func(kind string, run func(context.Context, *node.Bound, *slog.Logger) error) {
		cmd.AddCommand(&cobra.Command{
			Use: kind, Args: cobra.NoArgs, Short: "Run a " + kind,
			Long: "Run a " + kind + " from the order on descriptor 3.", Example: "  entail up",
			PersistentPreRunE: func(*cobra.Command, []string) error { a.started = true; return nil },
			RunE: func(cmd *cobra.Command, _ []string) error {
				log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level})).With(slog.String("process", kind))
				ctx, bound, err := node.Bind(cmd.Context())
				if err != nil {
					return usagef("%w", err)
				}
				err = run(ctx, bound, log)
				if err != nil {
					bound.Fail(err)
					log.Error("process ends", slog.Any("error", err))
					return &exitError{exit: exitFailed, code: codeFailed, err: err, quiet: true}
				}
				return nil
			},
		})
	}
	add("coordinator", runCoordinator)
	add("worker", func(ctx context.Context, b *node.Bound, log *slog.Logger) error {
		return runWorker(ctx, b, a.force, log)
	})
	return cmd
}

func runCoordinator(ctx context.Context, b *node.Bound, log *slog.Logger) error {
	var cfg node.CoordinatorConfig
	if err := json.Unmarshal(b.Order.Config, &cfg); err != nil {
		return fmt.Errorf("read the coordinator's order: %w", err)
	}
	return node.Coordinator(ctx, b.Order.Credentials, cfg, log, b.Ready)
}

func runWorker(ctx context.Context, b *node.Bound, abort <-chan struct{}, log *slog.Logger) error {
	var cfg node.WorkerConfig
	if err := json.Unmarshal(b.Order.Config, &cfg); err != nil {
		return fmt.Errorf("read the worker's order: %w", err)
	}
	cfg.Abort = abort
	return node.Worker(ctx, b.Order, cfg, log.With(slog.String("worker", cfg.Name)), b.Ready)
}
