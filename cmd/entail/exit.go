package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// The exit codes, documented in docs/cli.md. Of several that apply to a run the
// first in the order of verdictOf counts.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitDenied      = 3
	exitNothing     = 4
	exitUnfinished  = 5
	exitUnavailable = 6
	exitInterrupted = 7
	exitUnheld      = 8
)

// The codes of errors that the command line makes itself.
const (
	codeUsage       = "USAGE"
	codeUnavailable = "UNAVAILABLE"
	codeInterrupted = "INTERRUPTED"
	codeFailed      = "FAILED"
)

// exitError is an error that says how the command exits. A quiet one was told
// already.
type exitError struct {
	exit  int
	code  string
	err   error
	quiet bool
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usagef is for what the user gave: nothing was done.
func usagef(format string, args ...any) error {
	return &exitError{exit: exitUsage, code: codeUsage, err: fmt.Errorf(format, args...)}
}

// unavailable is for a deployment that cannot be reached or started. One whose
// start was interrupted is just that.
func unavailable(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return &exitError{exit: exitUnavailable, code: codeUnavailable, err: err}
}

// classify gives every error an exit code and a code that programs match on.
func classify(err error) *exitError {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*client.Error](err); ok {
		return &exitError{exit: exitOfCode(e.Code), code: string(e.Code), err: err}
	}
	if errors.Is(err, context.Canceled) {
		return &exitError{exit: exitInterrupted, code: codeInterrupted, err: errors.New("interrupted")}
	}
	return &exitError{exit: exitFailed, code: codeFailed, err: err}
}

// exitOfCode maps the coordinator's codes: what the user asked for was wrong, the
// deployment cannot answer, or it refused.
func exitOfCode(code client.Code) int {
	switch code {
	case client.CodeInvalid, client.CodeNotFound, client.CodeNoCall, client.CodeTooLarge, client.CodeVersion,
		client.Code(policy.CodeUnknownMode), client.Code(policy.CodeUnknownPolicy), client.Code(policy.CodeUnknownPreset),
		client.Code(policy.CodeUnknownTool), client.Code(policy.CodeArguments):
		return exitUsage
	case client.CodeUnavailable, client.CodeUnknown, client.CodeLoss, client.CodeUnauthorized:
		return exitUnavailable
	default:
		return exitFailed
	}
}

// verdict is how a run over a whole tree went.
type verdict struct {
	Exit    int    `json:"exit"`
	Outcome string `json:"outcome"`
	Why     string `json:"why,omitempty"`
}

// verdictOf derives the outcome of a run from every session of its tree, the
// root first (SPEC 7.5). A denied or unfinished run is never a success.
func verdictOf(tree []client.Summary) verdict {
	if len(tree) == 0 {
		return verdict{exitFailed, "failed", "the tree has no session"}
	}
	root := tree[0]
	switch root.Outcome {
	case session.OutcomeInterrupted, session.OutcomeCancelled, session.OutcomeBudget:
		return verdict{exitInterrupted, string(root.Outcome), endText(root)}
	default: // the rest of the tree counts
	}
	calls, denials := 0, 0
	var failed, unfinished *client.Summary
	for i, s := range tree {
		calls, denials = calls+s.Calls, denials+s.Denials
		switch {
		case hasFailed(s) && failed == nil:
			failed = &tree[i]
		case unfinishedChild(s, i == 0) && unfinished == nil:
			unfinished = &tree[i]
		}
	}
	switch {
	case failed != nil:
		return verdict{exitFailed, "failed", fmt.Sprintf("session %s: %s", failed.Header.ID, endText(*failed))}
	case unfinished != nil:
		return verdict{exitUnfinished, "children unfinished", fmt.Sprintf("session %s is %s", unfinished.Header.ID, stateText(*unfinished))}
	case calls == 0 && !root.Text:
		return verdict{exitNothing, "nothing done", "no call succeeded and no final text was given" + loopText(tree)}
	case denials > 0:
		return verdict{exitDenied, "done with denials", fmt.Sprintf("calls denied: %d", denials) + loopText(tree)}
	}
	return verdict{exitDone, "done", ""}
}

// loopText says which session was stopped for asking for the same refused call again
// and again (SPEC 5.8), if one was.
func loopText(tree []client.Summary) string {
	for _, s := range tree {
		if s.LastEnd != nil && s.LastEnd.Reason.Kind == session.EndBlocked {
			return fmt.Sprintf("; session %s was stopped: %s", s.Header.ID, s.LastEnd.Reason.Message)
		}
	}
	return ""
}

func hasFailed(s client.Summary) bool {
	switch s.Outcome {
	case session.OutcomeFailed, session.OutcomeRefused, session.OutcomeOutOfRoom:
		return true
	default:
		return s.Status == client.StatusStopped
	}
}

// unfinishedChild reports a session that was left in the middle of something, or
// that somebody else than this run's user stopped.
func unfinishedChild(s client.Summary, root bool) bool {
	switch s.Outcome {
	case session.OutcomeInterrupted, session.OutcomeCancelled, session.OutcomeBudget:
		return !root
	default:
		return !settled(s)
	}
}

// settled reports a session that has nothing left to do by itself.
func settled(s client.Summary) bool {
	switch s.Status {
	case client.StatusIdle, client.StatusEnded, client.StatusStopped:
		return true
	default:
		return false
	}
}

// stateText is a session's state in a few words.
func stateText(s client.Summary) string {
	if s.Outcome != "" {
		return fmt.Sprintf("%s (%s)", s.Status, s.Outcome)
	}
	return string(s.Status)
}

// nowText is what a session does or waits for now, empty if it does neither.
func nowText(s client.Summary) string {
	var words []string
	if s.Elapsed > 0 {
		words = append(words, fmt.Sprintf("turn %d for %s", s.Turn, span(ms(s.Elapsed))))
	}
	for _, c := range s.Current {
		what := c.What
		if c.What == client.DoingCall {
			what = fmt.Sprintf("%s %s", c.Tool, c.Call)
		}
		words = append(words, fmt.Sprintf("%s for %s", what, span(ms(c.Elapsed))))
	}
	for _, w := range s.WaitsFor {
		words = append(words, strings.TrimSpace(fmt.Sprintf("waits for %s %s", w.Kind, w.ID)))
	}
	if len(words) > 0 && s.LastTime > 0 {
		words = append(words, fmt.Sprintf("last event %s ago", span(ms(s.Age))))
	}
	return strings.Join(words, ", ")
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// endText says why a session is not going on.
func endText(s client.Summary) string {
	switch {
	case s.Stopped != "":
		return "stopped: " + s.Stopped
	case s.LastEnd != nil && s.LastEnd.Reason.Message != "":
		return s.LastEnd.Reason.Message
	}
	return stateText(s)
}
