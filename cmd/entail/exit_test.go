package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// summary is a session with an outcome; change makes it what a case needs.
func summary(status client.Status, outcome session.EndOutcome, change ...func(*client.Summary)) client.Summary {
	s := client.Summary{Header: session.Header{ID: "root"}, Status: status, Outcome: outcome}
	for _, c := range change {
		c(&s)
	}
	return s
}

func text(s *client.Summary)   { s.Text = true }
func called(s *client.Summary) { s.Calls++ }
func denied(s *client.Summary) { s.Denials++ }

func TestVerdictOf(t *testing.T) {
	t.Parallel()
	const idle, ended = client.StatusIdle, client.StatusEnded
	tests := []struct {
		name string
		tree []client.Summary
		want int
	}{
		{"text alone is done", []client.Summary{summary(idle, session.OutcomeCompleted, text)}, exitDone},
		{"calls alone are done", []client.Summary{summary(idle, session.OutcomeCompleted, called)}, exitDone},
		{"neither is nothing done", []client.Summary{summary(idle, session.OutcomeCompleted)}, exitNothing},
		{"nothing done comes before denials", []client.Summary{summary(idle, session.OutcomeDenials, denied)}, exitNothing},
		{"a denial of the root", []client.Summary{summary(idle, session.OutcomeDenials, text, denied)}, exitDenied},
		{
			"a denial anywhere in the tree",
			[]client.Summary{summary(idle, session.OutcomeCompleted, text, called), summary(ended, session.OutcomeCompleted), summary(ended, session.OutcomeDenials, denied)},
			exitDenied,
		},
		{
			"a call of a child counts for the tree",
			[]client.Summary{summary(idle, session.OutcomeCompleted), summary(ended, session.OutcomeCompleted, called)},
			exitDone,
		},
		{
			"a child at work is unfinished",
			[]client.Summary{summary(idle, session.OutcomeCompleted, text), summary(client.StatusRunning, "")},
			exitUnfinished,
		},
		{
			"a child that waits is unfinished",
			[]client.Summary{summary(idle, session.OutcomeCompleted, text), summary(client.StatusWaiting, "")},
			exitUnfinished,
		},
		{
			"a cancelled child is unfinished, whatever was denied",
			[]client.Summary{summary(idle, session.OutcomeCompleted, text, denied), summary(ended, session.OutcomeCancelled)},
			exitUnfinished,
		},
		{
			"a failed child fails the run before an unfinished one",
			[]client.Summary{summary(idle, session.OutcomeCompleted, text), summary(client.StatusRunning, ""), summary(ended, session.OutcomeFailed)},
			exitFailed,
		},
		{"a failed root", []client.Summary{summary(idle, session.OutcomeFailed, text)}, exitFailed},
		{"a refused root", []client.Summary{summary(idle, session.OutcomeRefused, text)}, exitFailed},
		{"out of room", []client.Summary{summary(idle, session.OutcomeOutOfRoom, text)}, exitFailed},
		{"a stopped log", []client.Summary{summary(client.StatusStopped, "", text)}, exitFailed},
		{
			"a cancelled root comes before all",
			[]client.Summary{summary(ended, session.OutcomeCancelled, denied), summary(ended, session.OutcomeFailed)},
			exitInterrupted,
		},
		{"an interrupted root", []client.Summary{summary(idle, session.OutcomeInterrupted, text)}, exitInterrupted},
		{"a used-up budget", []client.Summary{summary(ended, session.OutcomeBudget, text)}, exitInterrupted},
		{"no session at all", nil, exitFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := verdictOf(tt.tree); got.Exit != tt.want {
				t.Errorf("verdictOf = %+v, want exit %d", got, tt.want)
			}
		})
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error
		want int
	}{
		{"usage", usagef("no"), exitUsage},
		{"unavailable", unavailable(errors.New("no")), exitUnavailable},
		{"a start that was interrupted", unavailable(fmt.Errorf("start: %w", context.Canceled)), exitInterrupted},
		{"an unknown session", &client.Error{Code: client.CodeNotFound}, exitUsage},
		{"a malformed request", &client.Error{Code: client.CodeInvalid}, exitUsage},
		{"an unknown preset", &client.Error{Code: "UNKNOWN_PRESET"}, exitUsage},
		{"nobody answers", &client.Error{Code: client.CodeUnavailable}, exitUnavailable},
		{"a token that is not known", &client.Error{Code: client.CodeUnauthorized}, exitUnavailable},
		{"a refusal", &client.Error{Code: client.CodeEnded}, exitFailed},
		{"a refusal below a usage error stays usage", usagef("%w", &client.Error{Code: client.CodeEnded}), exitUsage},
		{"anything else", errors.New("no"), exitFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := classify(tt.err); got.exit != tt.want {
				t.Errorf("classify(%v) exits with %d, want %d", tt.err, got.exit, tt.want)
			}
		})
	}
}
