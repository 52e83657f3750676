//go:build linux && (amd64 || arm64) && mutate_signal

package main

func signalCalls() []uint32 { return nil }
