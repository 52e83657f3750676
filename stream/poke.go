package stream

import (
	"fmt"

	"github.com/nats-io/nats.go"
)

const pokePrefix = "entail.poke."

// Poke tells a worker to look at its sessions' tails at once. It is best effort:
// nothing relies on it.
func (l *Log) Poke(worker string) error {
	if err := l.nc.Publish(pokePrefix+worker, nil); err != nil {
		return fmt.Errorf("poke %s: %w", worker, err)
	}
	return nil
}

// newOrders is what a poke holds that speaks of a worker's orders.
const newOrders = "orders"

// PokeOrders tells a worker to read its orders at once. It is best effort.
func (l *Log) PokeOrders(worker string) error {
	if err := l.nc.Publish(pokePrefix+worker, []byte(newOrders)); err != nil {
		return fmt.Errorf("poke %s: %w", worker, err)
	}
	return nil
}

// OnPoke calls fn whenever a worker is poked, and says whether that was for its
// orders, until stop is called.
func (l *Log) OnPoke(worker string, fn func(orders bool)) (stop func() error, err error) {
	sub, err := l.nc.Subscribe(pokePrefix+worker, func(m *nats.Msg) { fn(string(m.Data) == newOrders) })
	if err != nil {
		return nil, fmt.Errorf("listen for pokes of %s: %w", worker, err)
	}
	return sub.Unsubscribe, nil
}
