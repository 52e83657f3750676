package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// maxSecrets bounds what is read as credentials or a token file.
const maxSecrets = 64 << 10

// wireCredentials is the one form in which a seed leaves the process.
type wireCredentials struct {
	URL  string `json:"url"`
	Role Role   `json:"role"`
	Name string `json:"name"`
	Seed string `json:"seed"`
}

func (w wireCredentials) credentials() (Credentials, error) {
	c := Credentials{URL: w.URL, Role: w.Role, Name: w.Name, Seed: NewSecret(w.Seed)}
	if c.URL == "" {
		return Credentials{}, errors.New("no server address")
	}
	id := Identity{Role: c.Role, Name: c.Name, Seed: c.Seed}
	return c, id.Validate()
}

func (c Credentials) wire() wireCredentials {
	return wireCredentials{URL: c.URL, Role: c.Role, Name: c.Name, Seed: c.Seed.Reveal()}
}

// MarshalSecret returns the credentials as JSON with the seed in the clear. It
// is meant for a pipe to a child process, never for a log.
func (c Credentials) MarshalSecret() ([]byte, error) { return json.Marshal(c.wire()) }

// WriteCredentials writes list in the clear, for [ReadCredentials] at the other
// end of an inherited descriptor.
func WriteCredentials(w io.Writer, list ...Credentials) error {
	wire := make([]wireCredentials, len(list))
	for i, c := range list {
		wire[i] = c.wire()
	}
	if err := json.NewEncoder(w).Encode(wire); err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	return nil
}

// ReadCredentials reads r to its end and returns what WriteCredentials wrote.
// Its errors never quote what was read.
func ReadCredentials(r io.Reader) ([]Credentials, error) {
	var wire []wireCredentials
	if err := decodeSecrets(r, &wire); err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	out := make([]Credentials, len(wire))
	for i, w := range wire {
		c, err := w.credentials()
		if err != nil {
			return nil, fmt.Errorf("read credentials: entry %d: %w", i, err)
		}
		out[i] = c
	}
	return out, nil
}

// TokenFile is what a person's programs need to reach a deployment.
type TokenFile struct {
	// Client connects to the broker.
	Client Credentials
	// Token is the bearer token the coordinator knows its person by.
	Token Secret
}

type wireTokenFile struct {
	Client wireCredentials `json:"client"`
	Token  string          `json:"token"`
}

// WriteTokenFile writes t to path with mode 0600, whole or not at all. It
// replaces a plain file and refuses anything else that stands there.
func WriteTokenFile(path string, t TokenFile) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("write token file %s: it exists and is no plain file: remove it, or choose another path", path)
	}
	text, err := json.Marshal(wireTokenFile{Client: t.Client.wire(), Token: t.Token.Reveal()})
	if err != nil {
		return fmt.Errorf("encode token file: %w", err)
	}
	// os.CreateTemp opens with O_EXCL and mode 0600.
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write token file %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}

// ReadTokenFile reads what WriteTokenFile wrote. It refuses a file that anybody
// but its owner can use, and a symbolic link.
func ReadTokenFile(path string) (TokenFile, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return TokenFile{}, fmt.Errorf("read token file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return TokenFile{}, fmt.Errorf("read token file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return TokenFile{}, fmt.Errorf("read token file %s: it is no plain file", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return TokenFile{}, fmt.Errorf("token file %s has mode %#o, so others can use it: chmod 600 %s, "+
			"and if others had access, have a new token made", path, mode, path)
	}
	var wire wireTokenFile
	if err := decodeSecrets(f, &wire); err != nil {
		return TokenFile{}, fmt.Errorf("read token file %s: %w", path, err)
	}
	client, err := wire.Client.credentials()
	if err != nil {
		return TokenFile{}, fmt.Errorf("read token file %s: %w", path, err)
	}
	return TokenFile{Client: client, Token: NewSecret(wire.Token)}, nil
}

// decodeSecrets decodes exactly one JSON value. It hides the decoder's errors,
// which quote the text.
func decodeSecrets(r io.Reader, into any) error {
	text, err := io.ReadAll(io.LimitReader(r, maxSecrets+1))
	if err != nil {
		return err
	}
	if len(text) > maxSecrets {
		return fmt.Errorf("longer than %d bytes", maxSecrets)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if dec.Decode(into) != nil {
		return errors.New("not the JSON that Entail writes")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}
