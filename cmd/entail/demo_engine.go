package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// container is what the Docker engine says of one.
type container struct {
	ID, Name string
	State    struct {
		Pid       int // on the engine's machine; 0 while it does not run
		StartedAt string
	}
	Mounts          []mount
	NetworkSettings struct {
		Networks map[string]struct{ IPAddress string }
	}
}

// mount is a file or directory of the machine that a container was given.
type mount struct{ Source, Destination string }

// source is what the container has under a path, empty if it was given nothing.
func (c container) source(destination string) string {
	for _, m := range c.Mounts {
		if m.Destination == destination {
			return m.Source
		}
	}
	return ""
}

// containersWith finds the containers that were given one of some files, whether
// they run or not.
func containersWith(ctx context.Context, files []string) ([]container, error) {
	args := []string{"ps", "--all", "--quiet", "--no-trunc"}
	for _, file := range files {
		args = append(args, "--filter", "volume="+file)
	}
	ids, err := docker(ctx, args...)
	if err != nil {
		return nil, err
	}
	return inspect(ctx, strings.Fields(string(ids)))
}

// inspect asks the engine about containers. It answers in their order.
func inspect(ctx context.Context, ids []string) ([]container, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	text, err := docker(ctx, append([]string{"inspect", "--type", "container"}, ids...)...)
	if err != nil {
		return nil, err
	}
	var found []container
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("read what docker inspect says: %w", err)
	}
	if len(found) != len(ids) {
		return nil, fmt.Errorf("docker inspect tells of %d containers, want %d", len(found), len(ids))
	}
	return found, nil
}

// docker runs the engine's own command.
func docker(ctx context.Context, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return nil, fmt.Errorf("docker %s: %w", args[0], err)
	}
	return out, nil
}
