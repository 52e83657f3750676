package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	envPrefix  = "ENTAIL_"
	configFile = "entail.yaml"
)

// configurable lists the flags that can also be set by the environment or by a
// file. What a flag is called there follows from its name.
func configurable() []string {
	return []string{
		"dir", "server", "token-file", "output", "cwd", "model", "base-url", "api-key-file", "sandbox", "approvals",
		"preset", "surface", "default-sandbox", "reviewer", "lease", "label", "workspace", "worker-label", "require-tier", "workers", "port", "sync-interval", "log-level",
	}
}

// layer is one source of configuration.
type layer struct {
	name string // as errors and the dump call it
	k    *koanf.Koanf
}

// layers are the sources below the flags, the strongest first.
type layers []layer

// value finds the strongest value of a key.
func (l layers) value(key string) (value, source string, ok bool) {
	for _, layer := range l {
		if layer.k.Exists(key) {
			return layer.k.String(key), layer.name, true
		}
	}
	return "", "", false
}

// given marks a flag that has a configurable one's name and is always given: what
// new sessions start with, or how many workers a server has, switches no session
// and names no worker of a fleet.
const given = "given"

// asGiven marks flags of a command.
func asGiven(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		flags.Lookup(name).Annotations = map[string][]string{given: {}}
	}
}

// loadLayers reads the environment and the file, and sets each flag of a command
// that was not given: flag over ENTAIL_* over entail.yaml.
func (a *app) loadLayers(cmd *cobra.Command) error {
	environment, err := a.environment()
	if err != nil {
		return err
	}
	file, err := a.file(cmd)
	if err != nil {
		return err
	}
	a.layers = layers{environment, file}
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, source, ok := a.layers.value(f.Name)
		if f.Changed || !ok || !slices.Contains(configurable(), f.Name) || f.Annotations[given] != nil {
			return
		}
		if err := f.Value.Set(value); err != nil {
			errs = append(errs, usagef("%s of %s: value %q: %w", f.Name, source, value, err))
		}
	})
	return errors.Join(errs...)
}

// environment reads the variables that begin with ENTAIL_.
func (a *app) environment() (layer, error) {
	k := koanf.New(".")
	p := env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return a.environ },
		TransformFunc: func(name, value string) (string, any) {
			return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_", "-"), value
		},
	})
	if err := k.Load(p, nil); err != nil {
		return layer{}, usagef("read the environment: %w", err)
	}
	return layer{"environment", k}, known(k, "the environment (as "+envPrefix+"*)")
}

// file reads the configuration file. Only a file that was asked for must exist.
func (a *app) file(cmd *cobra.Command) (layer, error) {
	name, asked := configFile, cmd.Flags().Changed("config")
	if asked {
		name = a.config
	}
	k := koanf.New(".")
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !asked:
		return layer{name, k}, nil
	case err != nil:
		return layer{}, usagef("read configuration: %w; name a file with --config, or leave it out", err)
	}
	if err := k.Load(rawbytes.Provider(text), yaml.Parser()); err != nil {
		return layer{}, usagef("configuration file %s is not YAML: %w; `entail config effective` shows the keys", name, err)
	}
	return layer{name, k}, known(k, name)
}

// known refuses a key that no flag has: a misspelt one must not be lost.
func known(k *koanf.Koanf, where string) error {
	for _, key := range k.Keys() {
		if !slices.Contains(configurable(), key) {
			return usagef("unknown setting %q in %s: known are %s", key, where, strings.Join(configurable(), ", "))
		}
	}
	return nil
}

// setting is one line of the effective configuration.
type setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// effective lists what every configurable flag comes to, and from where. The
// command's own flags count, so `config effective --dir x` shows x.
func (a *app) effective(cmd *cobra.Command) []setting {
	flags := map[string]*pflag.Flag{}
	walk(cmd.Root(), func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = f })
	})
	out := make([]setting, 0, len(configurable()))
	for _, key := range configurable() {
		f := flags[key]
		s := setting{Key: key, Value: f.DefValue, Source: "default"}
		if value, source, ok := a.layers.value(key); ok {
			s.Value, s.Source = value, source
		}
		if own := cmd.Flags().Lookup(key); own != nil && own.Changed {
			s.Value, s.Source = own.Value.String(), "flag"
		}
		out = append(out, s)
	}
	return out
}

// walk visits a command and all below it.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		walk(c, visit)
	}
}

// choice is a flag value out of a closed set.
type choice[T ~string] struct {
	value   *T
	allowed []T
}

func newChoice[T ~string](value *T, allowed ...T) *choice[T] { return &choice[T]{value, allowed} }

// String implements pflag.Value.
func (c *choice[T]) String() string { return string(*c.value) }

// Type implements pflag.Value.
func (c *choice[T]) Type() string {
	names := make([]string, len(c.allowed))
	for i, a := range c.allowed {
		names[i] = string(a)
	}
	return strings.Join(names, "|")
}

// Set implements pflag.Value.
func (c *choice[T]) Set(s string) error {
	if !slices.Contains(c.allowed, T(s)) {
		return fmt.Errorf("unknown value %q: use %s", s, c.Type())
	}
	*c.value = T(s)
	return nil
}
