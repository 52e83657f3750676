package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// build is what this binary was built from.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`
	Go      string `json:"go"`
	Format  int    `json:"format"`
	API     int    `json:"api"`
}

// versionOf reads what the go tool noted in the binary.
func versionOf() build {
	b := build{Version: "devel", Go: runtime.Version(), Format: session.FormatVersion, API: client.APIVersion}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		}
	}
	return b
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show what this binary is",
		Long:    "Show version, commit and date of this binary, the newest log format it reads and the version of the service it speaks.",
		Example: "  entail version -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := versionOf()
			return a.printer.value(b, func() {
				a.printer.line("entail %s", b.Version)
				a.printer.line("commit  %s", b.Commit)
				a.printer.line("date    %s", b.Date)
				a.printer.line("go      %s", b.Go)
				a.printer.line("format  %d", b.Format)
				a.printer.line("api     %d", b.API)
			})
		},
	}
}

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for a shell",
		Long: `Print a script that teaches a shell to complete this command: bash, zsh, fish or
powershell.`,
		Example:   "  source <(entail completion bash)",
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args:      arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(out)
			}
			return usagef("unknown shell %q: use bash, zsh, fish or powershell", args[0])
		},
	}
}
