//go:build linux && (amd64 || arm64) && !linger

package main

// linger does nothing: the thread that started the command ends.
func linger(int) {}
