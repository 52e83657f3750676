package node

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/stream"
)

// Provision makes what a deployment needs on a broker and is not there. It needs
// the provisioner's credentials and may be run again at any time.
func Provision(ctx context.Context, creds broker.Credentials, cfg stream.Config, lease time.Duration, logger *slog.Logger) error {
	nc, err := ConnectChecked(creds, logger)
	if err != nil {
		return err
	}
	defer nc.Close()
	log, err := stream.New(nc, cfg)
	if err != nil {
		return err
	}
	if err := log.Provision(ctx, stream.ProvisionConfig{AckWait: lease, LiveTTL: lease}); err != nil {
		return fmt.Errorf("provision the broker: %w", err)
	}
	return nil
}

// ReadCredentials reads the credentials of one identity from a file that only its
// owner can use, or from an inherited descriptor named /dev/fd/N.
func ReadCredentials(path string) (broker.Credentials, error) {
	f, err := os.Open(path)
	if err != nil {
		return broker.Credentials{}, fmt.Errorf("read credentials: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return broker.Credentials{}, fmt.Errorf("read credentials: %w", err)
	}
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 {
		return broker.Credentials{}, fmt.Errorf("credentials file %s has mode %#o, so others can use it: chmod 600 it", path, mode.Perm())
	}
	creds, err := broker.ReadCredentials(f)
	if err != nil {
		return broker.Credentials{}, fmt.Errorf("%s: %w", path, err)
	}
	if len(creds) != 1 {
		return broker.Credentials{}, fmt.Errorf("%s holds the credentials of %d identities: it takes one", path, len(creds))
	}
	return creds[0], nil
}

// ReadTokens reads who may ask a coordinator: a JSON list of token digests with
// party and role.
func ReadTokens(path string) ([]coordinator.Token, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	var tokens []coordinator.Token
	if err := json.Unmarshal(text, &tokens); err != nil {
		return nil, fmt.Errorf("read tokens %s: %w", path, err)
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("tokens file %s names nobody: nobody could ask", path)
	}
	return tokens, nil
}

// ParseFlags reads the flags of a process of a fleet, and those that are not given
// from their variables. Asked for help, it writes to out and returns
// [flag.ErrHelp].
func ParseFlags(fs *flag.FlagSet, args []string, out io.Writer, lookup func(string) (string, bool)) error {
	const wayOut = "-help lists the flags"
	fs.SetOutput(io.Discard) // an error is one line, and its caller's to write
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(out)
		fs.Usage()
		return err
	case err != nil:
		return fmt.Errorf("%w; %s", err, wayOut)
	case fs.NArg() > 0:
		return fmt.Errorf("%s takes no arguments and was given %q; %s", fs.Name(), fs.Args(), wayOut)
	}
	if err := Overlay(fs, lookup); err != nil {
		return fmt.Errorf("%w; %s", err, wayOut)
	}
	return nil
}

// CredentialsOf reads the credentials of a process's own role: another one's
// would be found out by what the broker does not permit.
func CredentialsOf(role broker.Role, path string) (broker.Credentials, error) {
	creds, err := ReadCredentials(path)
	if err != nil {
		return broker.Credentials{}, fmt.Errorf("%w; `entail keys init` writes the file of each %s", err, role)
	}
	if creds.Role != role {
		return broker.Credentials{}, fmt.Errorf("%s holds the credentials of %s %q: give those of a %s", path, creds.Role, creds.Name, role)
	}
	return creds, nil
}

// CheckPartitions reports a partition count that no fleet can have.
func CheckPartitions(n int) error {
	const most = 256 // an id has two hex digits for its partition
	if n < 1 || n > most {
		return fmt.Errorf("-partitions %d: give 1 to %d, what the keys were made for", n, most)
	}
	return nil
}

// Overlay sets each flag that was not given from its variable, ENTAIL_ and its
// name in capitals.
func Overlay(fs *flag.FlagSet, lookup func(string) (string, bool)) error {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var errs []error
	fs.VisitAll(func(f *flag.Flag) {
		name := "ENTAIL_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		v, ok := lookup(name)
		if !ok || given[f.Name] {
			return
		}
		if err := f.Value.Set(v); err != nil {
			errs = append(errs, fmt.Errorf("%s: value %q: %w", name, v, err))
		}
	})
	return errors.Join(errs...)
}
