//go:build linux && (amd64 || arm64)

package attack

import (
	"bufio"
	"crypto/ed25519"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// brokerAttempts are on the deployment's broker, without and with the worker's key.
// That a call can connect is the network's doing; that it can do nothing then is the
// broker's; that it has no key is the fence's.
func brokerAttempts() []Attempt {
	return []Attempt{
		{"broker/connect", func(t *Target) error { return dial("tcp", t.Broker) }},
		{"broker/publish", func(t *Target) error { return speak(t, "PUB entail.api.v1.attack 1\r\nx\r\n", nil) }},
		{"broker/subscribe", func(t *Target) error { return speak(t, "SUB > 1\r\n", nil) }},
		{"broker/sign-in-with-workers-key", func(t *Target) error {
			seed, err := readSeed(t.hidden(Key))
			if err != nil {
				return err
			}
			return speak(t, "SUB entail.poke.w1 1\r\n", seed)
		}},
	}
}

// readSeed reads a worker's key file.
func readSeed(path string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var keys []struct{ Seed string }
	if err := json.Unmarshal(text, &keys); err != nil || len(keys) != 1 {
		return nil, errors.Join(errNothing, err)
	}
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(keys[0].Seed)
	if err != nil {
		return nil, err
	}
	const prefix = 2
	if len(raw) < prefix+ed25519.SeedSize {
		return nil, errNothing
	}
	return ed25519.NewKeyFromSeed(raw[prefix : prefix+ed25519.SeedSize]), nil
}

// speak connects, signs in if it has a key, says something, and wants to hear no
// refusal of it.
func speak(t *Target, say string, key ed25519.PrivateKey) error {
	conn, err := connect("tcp", t.Broker)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience / 2)); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	info, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	hello, err := signIn(info, key)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s\r\n%sPING\r\n", hello, say); err != nil {
		return err
	}
	for {
		line, err := r.ReadString('\n')
		switch {
		case strings.HasPrefix(line, "-ERR"), err != nil && strings.HasPrefix(line, "-"):
			return fmt.Errorf("%w: %s", errRefused, strings.TrimSpace(line))
		case err != nil:
			return errors.Join(errRefused, err) // it closed on us
		case strings.HasPrefix(line, "PONG"):
			return nil
		}
	}
}

// signIn composes the options of a connection.
func signIn(info string, key ed25519.PrivateKey) ([]byte, error) {
	options := map[string]any{"verbose": false, "pedantic": false, "lang": "go", "version": "1", "protocol": 1, "headers": true}
	if key != nil {
		var said struct{ Nonce string }
		if err := json.Unmarshal([]byte(strings.TrimPrefix(info, "INFO ")), &said); err != nil {
			return nil, err
		}
		public, ok := key.Public().(ed25519.PublicKey)
		if !ok {
			return nil, errNothing
		}
		options["nkey"] = userKey(public)
		options["sig"] = base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(said.Nonce)))
	}
	return json.Marshal(options)
}

// userKey writes a public key as the broker knows it: a prefix, the key, a check sum.
func userKey(public ed25519.PublicKey) string {
	const userPrefix = 20 << 3
	raw := append([]byte{userPrefix}, public...)
	sum := crc16(raw)
	raw = binary.LittleEndian.AppendUint16(raw, sum)
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(raw)
}

// crc16 is the check sum of XMODEM.
func crc16(data []byte) uint16 {
	var crc uint16
	for _, b := range data {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
