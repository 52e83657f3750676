package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/chaos"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// pollInterval is how often a tree is looked at: often enough to see a call while
// it is open.
const pollInterval = 10 * time.Millisecond

// tree is one root session and what it starts, as its user sees them.
type tree struct {
	api  api
	id   session.ID
	dir  string
	seen func(chaos.Sighting)

	watchers map[session.ID]*chaos.Watcher
	next     map[session.ID]session.Seq
	from     map[session.ID]uint64                    // stream sequence of the last record that was read
	marks    map[session.CallID]map[session.ID]string // shell calls that have no result yet
	marked   map[string]bool                          // labels whose shell call succeeded
	answer   session.Outcome                          // to the root's question
	answered map[string]bool                          // questions that have it
}

// newTree starts a root whose first turn answers in words, and whose question gets an
// answer.
func newTree(ctx context.Context, a api, dir, script string, answer session.Outcome, seen func(chaos.Sighting)) (*tree, error) {
	id, err := session.RootID(ulid.Make().String(), 1)
	if err != nil {
		return nil, err
	}
	tr := &tree{
		api: a, id: id, dir: dir, seen: seen, watchers: map[session.ID]*chaos.Watcher{},
		next: map[session.ID]session.Seq{}, from: map[session.ID]uint64{}, marks: map[session.CallID]map[session.ID]string{}, marked: map[string]bool{},
		answer: answer, answered: map[string]bool{},
	}
	return tr, a.ask(ctx, client.MethodCreate, client.CreateRequest{
		Head: head(), ID: id, Cwd: dir, Prompt: "get ready", Surface: session.SurfaceAny,
		Model: client.Model{Provider: "scripted", Model: "script", Script: script},
	}, nil)
}

// run brings the tree through its two turns and to its end.
func (tr *tree) run(ctx context.Context) error {
	if err := tr.until(ctx, "the first turn has ended", func(all []client.Summary) bool {
		return settled(all) && len(all) == 1 && all[0].Turn == 1
	}); err != nil {
		return err
	}
	if err := tr.api.ask(ctx, client.MethodSend, client.SendRequest{
		Head: head(), ID: tr.id, MessageID: "begin", Content: "begin",
	}, nil); err != nil {
		return err
	}
	if err := tr.until(ctx, "the tree has done its work", func(all []client.Summary) bool {
		return settled(all) && len(all) > maxDepth
	}); err != nil {
		return err
	}
	// Roots and continuable children do not end by themselves.
	if err := tr.api.ask(ctx, client.MethodCancel, client.StopRequest{
		Head: head(), ID: tr.id, RequestID: "finish", Reason: "the work is done",
	}, nil); err != nil {
		return err
	}
	return tr.until(ctx, "the tree has ended", func(all []client.Summary) bool {
		for _, s := range all {
			if s.Status != client.StatusEnded {
				return false
			}
		}
		return true
	})
}

// settled reports a tree in which nothing goes on and no parent waits for the end
// of a child to be told.
func settled(all []client.Summary) bool {
	ended := map[session.ID]bool{}
	for _, s := range all {
		idle := s.Status == client.StatusIdle && s.LastEnd != nil && s.Pending == 0
		if ended[s.Header.ID] = s.Status == client.StatusEnded; !ended[s.Header.ID] && !idle {
			return false
		}
	}
	for _, s := range all {
		for _, child := range s.Children {
			if ended[child] && !ended[s.Header.ID] {
				return false
			}
		}
	}
	return true
}

// until follows the tree until it is as it must be.
func (tr *tree) until(ctx context.Context, what string, done func([]client.Summary) bool) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		var out client.ListReply
		if err := tr.api.ask(ctx, client.MethodTree, client.SessionRequest{Head: head(), ID: tr.id}, &out); err != nil {
			return fmt.Errorf("tree %s, until %s: %w", tr.id, what, err)
		}
		for _, s := range out.Sessions {
			if err := errors.Join(tr.read(ctx, s), tr.reply(ctx, s)); err != nil {
				return err
			}
		}
		if done(out.Sessions) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("tree %s, until %s: %w\n%s", tr.id, what, context.Cause(ctx), describe(out.Sessions))
		}
	}
}

// reply answers what a session waits for a person to say.
func (tr *tree) reply(ctx context.Context, s client.Summary) error {
	for _, w := range s.WaitsFor {
		if w.Kind != session.WaitApproval || tr.answered[w.ID] {
			continue
		}
		var out client.AnswerReply
		in := client.AnswerRequest{Head: head(), ID: s.Header.ID, Ask: w.ID, Outcome: tr.answer}
		if err := tr.api.ask(ctx, client.MethodAnswer, in, &out); err != nil || out.Outcome != tr.answer {
			return fmt.Errorf("answer %s of %s with %s: it came to %q: %w", w.ID, s.Header.ID, tr.answer, out.Outcome, err)
		}
		tr.answered[w.ID] = true
	}
	return nil
}

func describe(all []client.Summary) string {
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, "  %s %s %s: turn %d, step %d, next %d, pending %d, waits %v, children %v, worker %q, stopped %q\n",
			s.Header.ID, s.Header.Label, s.Status, s.Turn, s.Steps, s.Next, s.Pending, s.WaitsFor, s.Children, s.Worker, s.Stopped)
	}
	return b.String()
}

// read follows a session's own events, from its raw records.
func (tr *tree) read(ctx context.Context, s client.Summary) error {
	id := s.Header.ID
	if tr.watchers[id] == nil {
		tr.watchers[id], tr.next[id] = chaos.NewWatcher(id), s.Header.FirstLiveSeq
	}
	for more := tr.next[id] < s.Next; more; {
		var out client.RecordsReply
		if err := tr.api.ask(ctx, client.MethodRecords, client.RecordsRequest{Head: head(), ID: id, From: tr.from[id]}, &out); err != nil {
			return fmt.Errorf("read session %s: %w", id, err)
		}
		var events []session.Event
		for _, r := range out.Records {
			tr.from[id] = r.StreamSeq
			own, err := ownEvents(id, r.Raw())
			if err != nil {
				return fmt.Errorf("read session %s: %w", id, err)
			}
			events = append(events, own...)
		}
		for _, e := range events {
			tr.mark(id, e)
			tr.next[id] = e.Seq + 1
		}
		for _, sighting := range tr.watchers[id].See(events...) {
			tr.seen(sighting)
		}
		more = out.More
	}
	return nil
}

// ownEvents are a record's events that belong to a session's log.
func ownEvents(id session.ID, raw session.Raw) ([]session.Event, error) {
	r, err := session.DecodeRecord(raw)
	switch {
	case err != nil:
		return nil, err
	case raw.Address.Class == session.ClassGenesis && raw.Address.Session == id && r.Birth != nil:
		return r.Birth.First.Events, nil
	case r.Own != nil:
		return r.Own.Events, nil
	}
	return nil, nil
}

// mark remembers whose shell call the log says succeeded.
func (tr *tree) mark(id session.ID, e session.Event) {
	switch p := e.Payload.(type) {
	case *session.ToolCall:
		if p.Name == "bash" {
			if tr.marks[p.CallID] == nil {
				tr.marks[p.CallID] = map[session.ID]string{}
			}
			tr.marks[p.CallID][id] = strings.TrimSuffix(p.ModelID, "-mark")
		}
	case *session.ToolResult:
		if label, ok := tr.marks[p.CallID][id]; ok && !p.IsError {
			tr.marked[label] = true
		}
	}
}

// checkDisk holds the disk to the log: what a call did that succeeded is there
// once, and nothing is there twice.
func (tr *tree) checkDisk() error {
	text, err := os.ReadFile(filepath.Join(tr.dir, "marks"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	times := map[string]int{}
	for label := range strings.FieldsSeq(string(text)) {
		times[label]++
	}
	var errs []error
	for label, n := range times {
		if n > 1 {
			errs = append(errs, fmt.Errorf("tree %s: the shell call of %s had its effect %d times", tr.id, label, n))
		}
	}
	for label := range tr.marked {
		if times[label] == 0 {
			errs = append(errs, fmt.Errorf("tree %s: the shell call of %s succeeded in the log and not on the disk", tr.id, label))
		}
	}
	if len(tr.answered) != 1 || times["asked"] > 0 && tr.answer != session.AllowedOnce {
		errs = append(errs, fmt.Errorf("tree %s: its %d questions were answered with %s, and what was asked for was done %d times", tr.id, len(tr.answered), tr.answer, times["asked"]))
	}
	return errors.Join(errs...)
}
