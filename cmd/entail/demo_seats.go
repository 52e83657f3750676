package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/node"
)

// fleetKeys is the part of what keys init wrote that the demo needs.
type fleetKeys struct {
	dir                   string // absolute
	brokers               int
	port                  string   // of each broker
	coordinators, workers []string // files
	reader, coordinator   broker.Credentials
}

func readFleetKeys(dir string) (k fleetKeys, err error) {
	if k.dir, err = filepath.Abs(dir); err != nil {
		return k, err
	}
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return k, err
	}
	for _, e := range entries {
		switch role, _, _ := strings.Cut(e.Name(), "-"); broker.Role(role) {
		case broker.Coordinator:
			k.coordinators = append(k.coordinators, filepath.Join(k.dir, e.Name()))
		case broker.Worker:
			k.workers = append(k.workers, filepath.Join(k.dir, e.Name()))
		default: // nobody's whom the demo has to find
		}
	}
	if len(k.coordinators) == 0 || len(k.workers) < 2 {
		return k, fmt.Errorf("%s has the keys of %d coordinators and %d workers, and the story needs 1 and 2: name what `entail keys init` wrote",
			dir, len(k.coordinators), len(k.workers))
	}
	if k.reader, err = node.ReadCredentials(filepath.Join(k.dir, "reader.json")); err != nil {
		return k, err
	}
	if k.coordinator, err = node.ReadCredentials(k.coordinators[0]); err != nil {
		return k, err
	}
	urls := strings.Split(k.reader.URL, ",")
	k.brokers = len(urls)
	k.port = urls[0][strings.LastIndex(urls[0], ":")+1:]
	return k, nil
}

// brokerDir is what every broker was given.
func (k fleetKeys) brokerDir() string { return filepath.Join(k.dir, "broker") }

// files are what tells the containers of the fleet: each was given one of these.
func (k fleetKeys) files() []string {
	return slices.Concat([]string{k.brokerDir()}, k.coordinators, k.workers)
}

// seat is the container that holds one key.
type seat struct {
	rank rank
	name string // of a coordinator or worker that of its credentials
	id   string
}

// rank is when a container is started; they are stopped the other way round.
type rank int

const (
	rankBroker rank = iota + 1
	rankCoordinator
	rankWorker
)

func ranks() []rank { return []rank{rankBroker, rankCoordinator, rankWorker} }

// seat finds the container of each key, and the directory of this machine that is
// the workers' workspace. A key without a container, or with two, is another fleet
// than that of docker-compose.yml.
func (k fleetKeys) seat(found []container) (seats []seat, workspace string, err error) {
	held := map[string][]container{}
	for _, c := range found {
		for _, m := range c.Mounts {
			held[m.Source] = append(held[m.Source], c)
		}
	}
	if n := len(held[k.brokerDir()]); n != k.brokers {
		return nil, "", fmt.Errorf("%d containers have %s, want %d", n, k.brokerDir(), k.brokers)
	}
	for _, c := range held[k.brokerDir()] {
		seats = append(seats, seat{rankBroker, strings.TrimPrefix(c.Name, "/"), c.ID})
	}
	for _, file := range slices.Concat(k.coordinators, k.workers) {
		if n := len(held[file]); n != 1 {
			return nil, "", fmt.Errorf("%d containers have %s, want 1", n, file)
		}
		c := held[file][0]
		role, name, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".json"), "-")
		if broker.Role(role) == broker.Coordinator {
			seats = append(seats, seat{rankCoordinator, name, c.ID})
			continue
		}
		seats = append(seats, seat{rankWorker, name, c.ID})
		source := c.source(fleetWorkspace)
		if source == "" || workspace != "" && workspace != source {
			return nil, "", fmt.Errorf("worker %s does not share %s with the others", name, fleetWorkspace)
		}
		workspace = source
	}
	return seats, workspace, nil
}
