package model

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// MaxScriptBytes is the greatest size of a script, so that its text fits into
// the first record of a root session.
const MaxScriptBytes = 256 << 10

// RootLabel is the label under which a script lists the root's responses.
const RootLabel = "root"

// waitInterval is how often a held response looks for its file.
const waitInterval = 10 * time.Millisecond

// Script is a scripted model: for each session label, the responses it gives.
// It is immutable.
type Script struct {
	data   []byte
	labels []string
	lists  map[string][]item
}

// item is one response of a script.
type item struct {
	text    string
	calls   []Call
	waitFor string
}

// Bytes returns a copy of the text that the script was parsed from.
func (s *Script) Bytes() []byte { return slices.Clone(s.data) }

// SHA256 returns the hash of [Script.Bytes] in lower-case hex.
func (s *Script) SHA256() string {
	sum := sha256.Sum256(s.data)
	return hex.EncodeToString(sum[:])
}

// Labels returns the labels that have a list, in the order of the file.
func (s *Script) Labels() []string { return slices.Clone(s.labels) }

// Client returns the model that answers from the script. It keeps no state: the
// request's label and position say which response is due, so any process can
// go on where another one stopped.
func (s *Script) Client() Client { return scripted{script: s} }

type scripted struct{ script *Script }

var _ Client = scripted{}

// Step returns the response at the request's position in the list of its label,
// or the text "done" where the script holds none.
func (c scripted) Step(ctx context.Context, req Request, onText func(string)) (Response, error) {
	if req.Position < 0 {
		return Response{}, fmt.Errorf("scripted step of %q: position %d is negative", req.Label, req.Position)
	}
	due := item{text: "done"}
	if list := c.script.lists[req.Label]; req.Position < len(list) {
		due = list[req.Position]
	}
	if due.waitFor != "" {
		if err := waitForFile(ctx, due.waitFor); err != nil {
			return Response{}, fmt.Errorf("scripted step %d of %q: %w", req.Position, req.Label, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return Response{}, fmt.Errorf("scripted step %d of %q: %w", req.Position, req.Label, ended(ctx))
	}
	if onText != nil && due.text != "" {
		onText(due.text)
	}
	finish := FinishStop
	if len(due.calls) > 0 {
		finish = FinishToolCalls
	}
	return Response{Text: due.text, Calls: slices.Clone(due.calls), Finish: finish, Model: "scripted"}, nil
}

// waitForFile returns when a file exists at path, or with the context's cause.
func waitForFile(ctx context.Context, path string) error {
	ticker := time.NewTicker(waitInterval)
	defer ticker.Stop()
	for {
		_, err := os.Stat(path)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("wait for %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", path, ended(ctx))
		case <-ticker.C:
		}
	}
}
