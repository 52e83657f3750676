//go:build !mutate_compare

package stream

// comparesLogs is the rule that a log is compared with the stream before the first
// append to it. A build with the tag mutate_compare takes it out.
const comparesLogs = true
