//go:build linux && (amd64 || arm64)

package main

import (
	"encoding/json"
	"io"
	"os"

	"github.com/entail-fleet/entail/internal/files"
	"github.com/entail-fleet/entail/internal/wire"
)

// performStage is the life of the second stage: one file operation, in a process
// that was confined before it began.
func performStage() int {
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 1
	}
	var r wire.Request
	if err := json.Unmarshal(data, &r); err != nil {
		return 1
	}
	done, err := perform(r)
	if err != nil {
		done = wire.Performance{Output: err.Error(), Code: wire.CodeUnavailable}
	}
	if err := json.NewEncoder(os.Stdout).Encode(done); err != nil {
		return 1
	}
	return 0
}

// perform does one operation. Its working directory is the workspace, which the
// first stage has compared with the worker's.
func perform(r wire.Request) (wire.Performance, error) {
	root, err := os.Open(".")
	if err != nil {
		return wire.Performance{}, err
	}
	temp, err := os.Open(r.Temp)
	if err != nil {
		return wire.Performance{}, err
	}
	site, err := files.Open(r.Bounds, root, temp, func() ([]files.ID, error) { return files.Linked(r.Hidden) })
	if err != nil {
		return wire.Performance{}, err
	}
	// The launcher ends an operation that may not go on.
	return site.Perform(r.Op, r.Cap, func() error { return nil }), nil
}
