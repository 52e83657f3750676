//go:build linux && (amd64 || arm64)

// Command attacker tries what a confined call must not be able to do: see package
// attack.
package main

import (
	"os"

	"github.com/entail-fleet/entail/internal/attack"
)

func main() { os.Exit(attack.Main(os.Args)) }
