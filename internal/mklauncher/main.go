// Command mklauncher builds the launcher that package sandbox embeds, for each machine
// that has a fence, so that the same source gives the same bytes everywhere. With
// -check it compares them with those that are there and changes nothing.
//
// Run it in the directory of package sandbox.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	check := flag.Bool("check", false, "compare, do not write")
	arch := flag.String("arch", "amd64,arm64", "machines, separated by commas")
	flag.Parse()
	if err := run(strings.Split(*arch, ","), *check); err != nil {
		fmt.Fprintln(os.Stderr, "mklauncher:", err)
		os.Exit(1)
	}
}

func run(archs []string, check bool) (err error) {
	dir, err := os.MkdirTemp("", "mklauncher-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	version, err := exec.Command("go", "list", "-m", "-f", "{{.GoVersion}}").Output() //nolint:noctx // it ends by itself
	if err != nil {
		return fmt.Errorf("ask for the module's Go version: %w", err)
	}
	for _, arch := range archs {
		name := "launcher_linux_" + arch + ".bin"
		made, err := build(arch, strings.TrimSpace(string(version)), filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if !check {
			if err := os.WriteFile(name, made, 0o644); err != nil { //nolint:gosec // as any file of the tree
				return err
			}
			continue
		}
		have, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, made) {
			return fmt.Errorf("sandbox/%s is not what its source gives: run make generate", name)
		}
	}
	return nil
}

// build builds with the Go version that the module names, and with nothing of this
// machine's settings.
func build(arch, version, out string) ([]byte, error) {
	cmd := exec.Command("env", "GOOS=linux", "GOARCH="+arch, "GOTOOLCHAIN=go"+version, //nolint:noctx // it ends by itself
		"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off", "GODEBUG=",
		"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", out, "./launcher")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("build the launcher for %s: %w", arch, err)
	}
	return os.ReadFile(out)
}
