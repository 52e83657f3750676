package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// fleetStartup bounds starting every container and hearing an answer.
	fleetStartup = 2 * time.Minute
	// askEvery is how often the fleet is asked until it answers.
	askEvery = 200 * time.Millisecond
	// fleetWorkspace is where the workers of docker-compose.yml have the workspace.
	fleetWorkspace = "/workspace"
)

// fleetPlace is the fleet of docker-compose.yml on this machine's Docker engine.
type fleetPlace struct {
	a     *app
	keys  fleetKeys
	seats []seat // in the order of starting
	here  string // a directory of the story's own in the workspace
	keep  bool   // do not remove it
}

// openFleet finds the containers that were given the keys of a directory.
func openFleet(ctx context.Context, a *app, dir string, keep bool) (*fleetPlace, error) {
	keys, err := readFleetKeys(dir)
	if err != nil {
		return nil, usagef("--fleet: %w", err)
	}
	f := &fleetPlace{a: a, keys: keys, keep: keep}
	found, err := containersWith(ctx, keys.files())
	if err != nil {
		return nil, unavailable(err)
	}
	var workspace string
	if f.seats, workspace, err = keys.seat(found); err != nil {
		return nil, unavailable(fmt.Errorf("%w: is the fleet up? FLEET_KEYS=%s docker-compose up --detach", err, keys.dir))
	}
	if f.here, err = os.MkdirTemp(workspace, "entail-demo-"); err != nil {
		return nil, unavailable(fmt.Errorf("make a directory in the fleet's workspace: %w; it takes root on the machine of the Docker engine", err))
	}
	if err := letThrough(f.here); err != nil {
		return nil, unavailable(errors.Join(err, os.Remove(f.here)))
	}
	if keep {
		a.printer.line("workspace %s", f.here)
	}
	return f, nil
}

func (f *fleetPlace) start(ctx context.Context) (site, error) {
	ctx, cancel := context.WithTimeout(ctx, fleetStartup)
	defer cancel()
	if err := f.each(ctx, "start", ranks()); err != nil {
		return site{}, unavailable(err)
	}
	s, err := f.site(ctx)
	if err != nil {
		return site{}, unavailable(err)
	}
	f.a.reach(s)
	var silent error
	err = await(ctx, askEvery, func() (bool, error) {
		silent = f.a.with(func(d *deployment) error {
			_, err := d.info(ctx)
			return err
		})
		return silent == nil, nil
	})
	if err != nil {
		return site{}, unavailable(fmt.Errorf("the fleet does not answer: %w", errors.Join(err, silent)))
	}
	return s, nil
}

// site tells the addresses that the brokers have now. This machine reaches them on
// the network of the containers, so no port of the fleet need be open to others.
func (f *fleetPlace) site(ctx context.Context) (site, error) {
	brokers, err := inspect(ctx, f.ids(rankBroker))
	if err != nil {
		return site{}, err
	}
	var urls []string
	for _, c := range brokers {
		for _, n := range c.NetworkSettings.Networks {
			urls = append(urls, "nats://"+net.JoinHostPort(n.IPAddress, f.keys.port))
		}
	}
	s := site{
		tokenFile: filepath.Join(f.keys.dir, "token"), server: strings.Join(urls, ","),
		reader: f.keys.reader, coordinator: f.keys.coordinator,
		here: f.here, there: path.Join(fleetWorkspace, filepath.Base(f.here)),
		processes: len(f.seats), startup: fleetStartup,
	}
	s.reader.URL, s.coordinator.URL = s.server, s.server
	return s, nil
}

func (f *fleetPlace) stop(ctx context.Context) error {
	order := ranks()
	slices.Reverse(order)
	return f.each(ctx, "stop", order)
}

// each starts or stops the containers of one rank after the other. What the engine
// was told it goes on doing, so a command is never left before its end: the next
// one would find containers that are about to stop.
func (f *fleetPlace) each(ctx context.Context, what string, order []rank) error {
	for _, r := range order {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), fleetStartup)
		_, err := docker(whole, append([]string{what}, f.ids(r)...)...)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *fleetPlace) running(ctx context.Context) ([]living, error) {
	ids := make([]string, len(f.seats))
	for i, s := range f.seats {
		ids[i] = s.id
	}
	found, err := inspect(ctx, ids)
	if err != nil {
		return nil, err
	}
	var all []living
	for i, c := range found {
		if c.State.Pid != 0 {
			all = append(all, living{f.seats[i].name, c.State.Pid, c.State.StartedAt})
		}
	}
	return all, nil
}

func (f *fleetPlace) leave() error {
	if f.keep {
		return nil
	}
	return os.RemoveAll(f.here)
}

// ids lists the containers of one rank.
func (f *fleetPlace) ids(r rank) []string {
	var out []string
	for _, s := range f.seats {
		if s.rank == r {
			out = append(out, s.id)
		}
	}
	return out
}
