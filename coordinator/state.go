package coordinator

import (
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

// seen is a worker as this coordinator sees it. Ages are by this process's clock: a
// worker's own may be wrong.
type seen struct {
	client.Alive
	revision uint64    // of its value in the liveness bucket
	since    time.Time // when that one was found
}

// hold is how a driver holds the claim in force of a session.
type hold int

const (
	// holdNone: the driver is not there, or another run of it is.
	holdNone hold = iota + 1
	// holdLeft: the driver is there and does not list the claim.
	holdLeft
	// holdSilent: the claim is listed, and the driver has missed a sign of life.
	holdSilent
	// holdLive: the claim is listed.
	holdLive
)

// heartbeats is how many signs of life a worker gives in a lease.
const heartbeats = 6

// holds tells how the claim in force is held, as of the last look at the liveness
// bucket: while that cannot be read nothing is known to have changed.
func (c *Coordinator) holds(s session.State) hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.alive[s.Claim.Worker]
	switch {
	case !ok || a.Incarnation != s.Claim.Incarnation:
		return holdNone
	case !a.Drives(s.Header.ID, s.Epoch):
		return holdLeft
	case a.Lease > 0 && c.looked.Sub(a.since) > 2*time.Duration(a.Lease)/heartbeats:
		return holdSilent
	}
	return holdLive
}

// state derives a session's one state as [client.Status] defines it.
func (c *Coordinator) state(e sessionstore.Entry) (client.Status, session.EndOutcome) {
	s := e.State
	switch {
	case s.Ended != nil:
		return client.StatusEnded, s.Ended.Outcome
	case s.Open != nil && !s.Open.Parked:
		return c.turnState(s), ""
	case s.Runnable() && c.driven(s):
		return client.StatusRunning, "" // its driver is about to take what has come
	case s.Runnable() && c.cfg.Now().Sub(time.UnixMilli(e.LastTime)) > 2*time.Duration(c.settings().Lease):
		return client.StatusStalled, ""
	case s.Runnable(), s.Open != nil:
		return client.StatusWaiting, ""
	case s.LastEnd != nil:
		return client.StatusIdle, delegation.OutcomeOf(s.LastEnd.Reason, s.Denials > 0)
	}
	return client.StatusIdle, ""
}

// turnState is the state of a session whose turn is open and not parked.
func (c *Coordinator) turnState(s session.State) client.Status {
	switch h := c.holds(s); {
	case h == holdLive:
		return client.StatusRunning
	case h == holdSilent:
		return client.StatusStalled
	case c.deferred(s):
		return client.StatusWaiting
	case h == holdNone:
		return client.StatusLost
	}
	return client.StatusStalled
}

// deferred reports whether the last word of an open turn is that its driver has
// handed it over.
func (c *Coordinator) deferred(s session.State) (yes bool) {
	if s.Next <= s.Header.FirstLiveSeq {
		return false
	}
	err := c.cfg.Store.Events(s.Header.ID, s.Next-1, s.Next, func(e session.Event) error {
		_, yes = e.Payload.(*session.TurnDeferred)
		return nil
	})
	return err == nil && yes
}

// clock fills in since when, and what is done now.
func (c *Coordinator) clock(out *client.Summary, e sessionstore.Entry) {
	now, s := c.now(), e.State
	if e.LastTime > 0 {
		out.LastTime, out.Age = e.LastTime, max(now-e.LastTime, 0)
	}
	if s.Open == nil || s.Ended != nil {
		return
	}
	out.Since, out.Elapsed = s.Open.StartTime, max(now-s.Open.StartTime, 0)
	if s.Open.Parked || out.Status == client.StatusWaiting {
		return
	}
	out.Current = current(s)
	for i := range out.Current {
		out.Current[i].Elapsed = max(now-out.Current[i].Since, 0)
	}
}

// current lists what a driver does at this point of a log: the calls that run, or
// the request for an answer.
func current(s session.State) []client.Doing {
	if s.Open.StepOpen && !s.Open.Answered {
		return []client.Doing{{What: client.DoingModel, Since: s.Open.StepTime}}
	}
	var out []client.Doing
	for _, call := range s.Open.Calls {
		if call.State == session.CallAllowed && call.Child == "" {
			out = append(out, client.Doing{What: client.DoingCall, Call: call.ID, Tool: call.Name, Since: call.Time})
		}
	}
	return out
}
