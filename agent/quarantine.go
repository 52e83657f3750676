package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// errQuarantined says that nobody may drive a session until a person has looked
// at it.
var errQuarantined = errors.New("the session is quarantined")

// quarantine refuses a session on which as many incarnations of workers died as
// are enough, though its claim is free. Workers are those alive now.
func quarantine(s session.State, events []session.Event, workers map[string]client.Alive) error {
	why := session.Quarantine(s, events, func(c session.Claim) bool {
		return workers[c.Worker].Incarnation == c.Incarnation
	})
	if why == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", errQuarantined, why)
}

// quarantined reports whether an error means that nobody may drive the session:
// it killed its drivers, or nobody can fold its log. What is lost may come back
// with its stream, so a loss is none: the session waits for it.
func quarantined(err error) bool {
	return errors.Is(err, errQuarantined) || errors.Is(err, session.ErrCorrupt) && !errors.Is(err, session.ErrLoss)
}

// giveUp says in the log that the loop leaves its open turn, and why, so that
// nobody takes it for one that the session killed. It is best effort: one that
// cannot say it is taken for dead when its worker is.
func (d *driver) giveUp(ctx context.Context, why error) {
	s, events := d.rep.both()
	var seqs []session.Seq
	for _, e := range (Facts{Events: events}).since(s.Open.StartSeq) {
		if c, ok := e.Payload.(*session.Consumed); ok {
			seqs = append(seqs, c.Seqs...)
		}
	}
	if len(seqs) == 0 || why == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(limitRelease, d.worker.cfg.Lease/4))
	defer cancel()
	open := func(s session.State) bool { return s.Open != nil && !s.Open.Parked }
	slices.Sort(seqs) // a notice may have overtaken messages
	err := d.append(ctx, d.whileMine("give up", open, []session.Payload{&session.TurnDeferred{
		Seqs: seqs, Until: time.Now().Add(d.worker.cfg.Lease).UnixMilli(), Why: reason(why),
	}}))
	if err != nil {
		d.log.Debug("the log does not say that its turn was left", slog.Any("error", err))
	}
}

// isNudge reports whether a record holds nudges and no more.
func isNudge(raw session.Raw) bool {
	rec, err := session.DecodeRecord(raw)
	return err == nil && rec.Own != nil && !slices.ContainsFunc(rec.Own.Events, func(e session.Event) bool {
		return !is[*session.Nudge](e.Payload)
	})
}
