package broker

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Role says what an identity is for and thereby what it may do.
type Role string

// The roles. Their values stand in account names and inbox prefixes.
const (
	Provisioner Role = "provisioner"
	Client      Role = "client"
	Coordinator Role = "coordinator"
	Worker      Role = "worker"
	Reader      Role = "reader"
)

// Roles returns every role.
func Roles() []Role {
	return []Role{Provisioner, Client, Coordinator, Worker, Reader}
}

// Identity is one party the broker knows: its role, its name among the holders
// of that role, and its key.
type Identity struct {
	// Role decides what the identity may do.
	Role Role
	// Name is unique within the role: lower-case letters, digits, - and _, at
	// most 64 bytes. A worker's name is a token of its subjects.
	Name string
	// Seed is the private key as an nkey user seed.
	Seed Secret
}

// NewIdentity returns an identity with a fresh key.
func NewIdentity(role Role, name string) (Identity, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return Identity{}, fmt.Errorf("create a key for %s %q: %w", role, name, err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return Identity{}, fmt.Errorf("read the new key of %s %q: %w", role, name, err)
	}
	id := Identity{Role: role, Name: name, Seed: NewSecret(string(seed))}
	return id, id.Validate()
}

// NewIdentities returns the identities of a small deployment: one of each role, by the
// role's own name, and in place of a worker so called those that are named.
func NewIdentities(workers ...string) ([]Identity, error) {
	var out []Identity
	for _, role := range Roles() {
		names := []string{string(role)}
		if role == Worker {
			names = workers
		}
		for _, name := range names {
			id, err := NewIdentity(role, name)
			if err != nil {
				return nil, err
			}
			out = append(out, id)
		}
	}
	return out, nil
}

// Validate reports a role, name or key that is not well-formed.
func (i Identity) Validate() error {
	if err := validateName(i.Role, i.Name); err != nil {
		return err
	}
	_, err := i.PublicKey()
	return err
}

// PublicKey returns the public half of the key, which the server knows.
func (i Identity) PublicKey() (string, error) {
	pair, err := userKey(i.Seed)
	if err != nil {
		return "", fmt.Errorf("key of %s %q: %w", i.Role, i.Name, err)
	}
	return pair.PublicKey()
}

// account is the name of the account the identity lives in.
func (i Identity) account() string {
	if i.Role == Coordinator {
		return logAccount
	}
	return string(i.Role) + "_" + i.Name
}

// Credentials are what an identity needs to connect.
type Credentials struct {
	// URL is the server's address.
	URL string
	// Role is the identity's role.
	Role Role
	// Name is the identity's name.
	Name string
	// Seed is the identity's private key.
	Seed Secret
}

// pingInterval bounds how long a dead connection goes unnoticed to three times
// itself (nats.go allows two outstanding pings).
const pingInterval = 2 * time.Second

// reconnectWait is short against the shortest lease, so that a restart of the
// server alone does not cost a worker its claims.
const reconnectWait = 250 * time.Millisecond

// Options returns the connection options every client of the broker must use.
// A publish is never buffered across a reconnect: the buffer would send it
// after its caller had given up on it. The error handler is left to the
// caller; without one a refused publish looks like an outage.
func (c Credentials) Options() []nats.Option {
	return []nats.Option{
		c.signIn,
		nats.Name(fmt.Sprintf("entail %s %s", c.Role, c.Name)),
		nats.CustomInboxPrefix(inboxPrefix(c.Role, c.Name)),
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval),
		nats.ReconnectWait(reconnectWait),
		nats.MaxReconnects(-1),
		nats.PermissionErrOnSubscribe(true),
	}
}

// signIn is a nats.Option that answers the server's challenge with the key.
func (c Credentials) signIn(o *nats.Options) error {
	pair, err := userKey(c.Seed)
	if err != nil {
		return fmt.Errorf("key of %s %q: %w", c.Role, c.Name, err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return fmt.Errorf("public key of %s %q: %w", c.Role, c.Name, err)
	}
	return nats.Nkey(public, pair.Sign)(o)
}

func userKey(seed Secret) (nkeys.KeyPair, error) {
	prefix, _, err := nkeys.DecodeSeed([]byte(seed.Reveal()))
	if err != nil {
		return nil, fmt.Errorf("not an nkey seed: %w", err)
	}
	if prefix != nkeys.PrefixByteUser {
		return nil, fmt.Errorf("an nkey of kind %s, not of a user", prefix)
	}
	return nkeys.FromSeed([]byte(seed.Reveal()))
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

func validateName(role Role, name string) error {
	if !slices.Contains(Roles(), role) {
		return fmt.Errorf("unknown broker role %q: use one of %v", role, Roles())
	}
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%s name %q: use 1 to 64 lower-case letters, digits, - or _, "+
			"starting with a letter or digit", role, name)
	}
	return nil
}
