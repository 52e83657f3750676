//go:build linux && (amd64 || arm64) && mutate_held

package sandbox

const sparesHeld = false
