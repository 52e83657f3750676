//go:build mutate_compare

package stream

const comparesLogs = false
