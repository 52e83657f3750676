package node

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/entail-fleet/entail/broker"
)

// maxOrder bounds an order: credentials, a few keys and a small configuration.
const maxOrder = 256 << 10

// Order is what a process is told over an inherited descriptor when it starts.
type Order struct {
	// Credentials connect it to the broker.
	Credentials broker.Credentials
	// Endpoints are the keys and addresses of model endpoints under the names
	// that model.Resolve asks for, such as OPENAI_API_KEY. Only workers have any.
	Endpoints map[string]broker.Secret
	// Config is the component's configuration as JSON. It holds no secret.
	Config json.RawMessage
}

// wireOrder is the one form in which the secrets of an order leave a process.
type wireOrder struct {
	Credentials json.RawMessage   `json:"credentials"`
	Endpoints   map[string]string `json:"endpoints,omitempty"`
	Config      json.RawMessage   `json:"config"`
}

// WriteOrder writes o in the clear, with its length in front, for [ReadOrder] at
// the other end of an inherited descriptor.
func WriteOrder(w io.Writer, o Order) error {
	var creds bytes.Buffer
	if err := broker.WriteCredentials(&creds, o.Credentials); err != nil {
		return err
	}
	wire := wireOrder{Credentials: creds.Bytes(), Config: o.Config, Endpoints: map[string]string{}}
	for name, s := range o.Endpoints {
		wire.Endpoints[name] = s.Reveal()
	}
	body, err := json.Marshal(wire)
	if err != nil {
		return errors.New("encode an order: its configuration is not JSON")
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(body))) //nolint:gosec // an order is small, and ReadOrder checks
	if _, err := w.Write(append(frame, body...)); err != nil {
		return fmt.Errorf("hand over an order: %w", err)
	}
	return nil
}

// ReadOrder reads one order and nothing behind it. Its errors never quote what
// was read.
func ReadOrder(r io.Reader) (Order, error) {
	var frame [4]byte
	if _, err := io.ReadFull(r, frame[:]); err != nil {
		return Order{}, fmt.Errorf("read the order: %w", err)
	}
	n := binary.BigEndian.Uint32(frame[:])
	if n > maxOrder {
		return Order{}, fmt.Errorf("read the order: it has %d bytes, at most %d are taken", n, maxOrder)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return Order{}, fmt.Errorf("read the order: %w", err)
	}
	var wire wireOrder
	if json.Unmarshal(body, &wire) != nil {
		return Order{}, errors.New("read the order: it is not what Entail writes")
	}
	creds, err := broker.ReadCredentials(bytes.NewReader(wire.Credentials))
	if err != nil || len(creds) != 1 {
		return Order{}, errors.New("read the order: it does not hold the credentials of one identity")
	}
	o := Order{Credentials: creds[0], Config: wire.Config, Endpoints: map[string]broker.Secret{}}
	for name, s := range wire.Endpoints {
		o.Endpoints[name] = broker.NewSecret(s)
	}
	return o, nil
}
