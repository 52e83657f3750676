//go:build mutate_relay

package coordinator

const mayRelay = false
