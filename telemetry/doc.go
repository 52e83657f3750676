// Package telemetry projects session logs to spans.
//
// A trace is a function of the log (SPEC 8.2): one span for each session, turn
// and call, with times from the events and ids derived from session, turn and
// call ids. Killing any process loses no span, because the log is still there;
// exporting twice changes nothing, because the same event always makes the same
// bytes. One event makes at most one span, finished and never revised.
//
// Spans start at firstLiveSeq: a fork's prefix was exported by whoever wrote it
// and is never exported again, the delegation's own events are (SPEC 8.1). A
// child's session span hangs on its parent's delegating call, and a caller's
// traceparent on a root is honoured (SPEC 8.3). No prompt, argument or result is
// in a span (SPEC 8.4).
//
// [Exporter] reads the log in stream order, sends what it projects to an OTLP
// endpoint over HTTP, and moves its cursor only after the endpoint has answered.
// A crash in between sends the same spans again.
package telemetry
