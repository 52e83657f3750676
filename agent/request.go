package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/session"
)

// request asks the model for the open step's answer and writes it, with its
// calls, as one record. What slips in meanwhile does not make the answer wrong: it
// is written as long as the step is open, not stopped, and the session this loop's.
func (d *driver) request(ctx context.Context, f Facts) error {
	asking, stop := d.watch(ctx)
	res, err := d.ask(asking, f)
	cause := context.Cause(asking)
	stop()
	switch {
	case err == nil:
		err = d.append(ctx, d.whileMine("answer", f.awaited(), f.answerEvents(res)))
		if errors.Is(err, session.ErrTooLarge) {
			return d.fail(ctx, f, errors.New("the answer is too large for the log"))
		}
		return err
	case errors.Is(cause, errStopped):
		return nil
	case cause != nil:
		return cause
	}
	return d.fail(ctx, f, err)
}

func (d *driver) ask(ctx context.Context, f Facts) (model.Response, error) {
	if f.State.Model == nil {
		return model.Response{}, errors.New("the session has no model")
	}
	c, err := d.worker.model(ctx, f.State)
	if err != nil {
		return model.Response{}, err
	}
	return c.Step(ctx, f.modelRequest(), nil)
}

// fail ends the turn for want of an answer.
func (d *driver) fail(ctx context.Context, f Facts, why error) error {
	if d.dispose(); d.undisposed != "" {
		return nil // which ends the turn
	}
	record := f.endStep().Events
	record = append(record, f.endTurn(session.EndReason{Kind: session.EndError, Message: clip(why.Error(), maxNotice)}).Events...)
	return d.append(ctx, d.whileMine("end the turn", f.awaited(), record))
}

// awaited is the condition of whatever came of a model request: its step is open and
// without an answer, and nobody has stopped the turn meanwhile. An answer that comes
// later is dropped (SPEC 7.7).
func (f Facts) awaited() func(session.State) bool {
	at := f.State
	return func(s session.State) bool {
		return s.Open != nil && s.Turn == at.Turn && s.Open.StepOpen && s.Open.Step == at.Open.Step && !s.Open.Answered && !s.Stopping()
	}
}

// answerEvents are an answer and its calls, under ids of ours (SPEC 4.5).
func (f Facts) answerEvents(res model.Response) []session.Payload {
	turn, step := f.State.Turn, f.State.Open.Step
	a := &session.AssistantMessage{
		Turn: turn, Step: step, Content: res.Text, Model: res.Model, Finish: res.Finish,
		Extent: f.extent(f.State.Open.StepSeq, f.State.Open.StepTime),
	}
	if res.Refusal != "" {
		a.Content, a.Finish = res.Refusal, finishRefusal
	}
	if u := res.Usage; u != (model.Usage{}) {
		a.Usage = &session.Usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CachedTokens: u.CachedTokens}
	}
	events := []session.Payload{a}
	for i, c := range res.Calls {
		a.Calls = append(a.Calls, i)
		name := c.Name
		if name == "" {
			name = "unnamed" // the log names every call's tool; there is none of this name
		}
		events = append(events, &session.ToolCall{
			Turn: turn, Step: step, Index: i, CallID: session.MakeCallID(turn, step, i),
			ModelID: c.ID, Name: name, Arguments: c.Arguments,
		})
	}
	return events
}

// providerScripted is the provider of the scripted model.
const providerScripted = "scripted"

// model returns the client of a session's model. A script stands in the root's
// log; below it stands where to find it.
func (w *Worker) model(ctx context.Context, s session.State) (model.Client, error) {
	m := s.Model
	if m.Provider != providerScripted {
		return w.cfg.Models(*m)
	}
	if m.Script == nil {
		return nil, errors.New("the scripted model has no script")
	}
	if script := w.script(m.Script.SHA256); script != nil {
		return script.Client(), nil
	}
	text := m.Script.Text
	if m.Script.Session != "" {
		var err error
		if text, err = w.scriptText(ctx, m.Script.Session, *m.Script.Seq); err != nil {
			return nil, fmt.Errorf("read the script: %w", err)
		}
	}
	if sum := sha256.Sum256([]byte(text)); hex.EncodeToString(sum[:]) != m.Script.SHA256 {
		return nil, errors.New("the script is not the one that the session names")
	}
	script, err := model.ParseScript("script", []byte(text), Tools()...)
	if err != nil {
		return nil, err
	}
	w.keepScript(script)
	return script.Client(), nil
}

// scriptText reads a script where another session's event names it: in its genesis,
// which nothing that came later can make unreadable. The digest in the reader's own
// log says whether it is the one.
func (w *Worker) scriptText(ctx context.Context, id session.ID, seq session.Seq) (string, error) {
	raw, err := w.cfg.Log.Genesis(ctx, id, id)
	if err != nil {
		return "", err
	}
	rec, err := session.DecodeRecord(raw)
	if err != nil {
		return "", err
	}
	if rec.Birth != nil {
		for _, e := range rec.Birth.First.Events {
			if m, is := e.Payload.(*session.ModelSelected); is && e.Seq == seq && m.Script != nil {
				return m.Script.Text, nil
			}
		}
	}
	return "", fmt.Errorf("event %d of %s holds no script", seq, id)
}

// script finds a script that was parsed before.
func (w *Worker) script(sum string) *model.Script {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.scripts[sum]
}

// maxScripts bounds how many parsed scripts are kept.
const maxScripts = 16

func (w *Worker) keepScript(s *model.Script) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.scripts) >= maxScripts {
		clear(w.scripts)
	}
	w.scripts[s.SHA256()] = s
}
