package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrGone is what a [KillFunc] returns when the process had ended by itself, or
// by an earlier kill, and has not come back yet.
var ErrGone = errors.New("the process is not running")

// KillFunc kills a process at once and leaves it no time to clean up. The name is
// a worker's; a coordinator has none. It must end only what its owner started.
type KillFunc func(v Victim, name string) error

// Strike is a kill that was carried out.
type Strike struct {
	Kill
	// At is how long after the start it was.
	At time.Duration
	// Name is the worker's.
	Name string
	// Sighting is what it was aimed at, nil at any time.
	Sighting *Sighting
}

// String is the strike's one line.
func (s Strike) String() string {
	aim := ""
	if s.Sighting != nil {
		aim = fmt.Sprintf(" (%s of %s)", s.Sighting.Call, s.Sighting.Session)
	}
	return fmt.Sprintf("%.1fs %s %s at %s%s", s.At.Seconds(), s.Victim, s.Name, s.Moment, aim)
}

// Nemesis carries out a plan.
type Nemesis struct {
	plan    Plan
	workers []string
	kill    KillFunc
	// seen carries sightings to Run, which receives only while a kill is due.
	// Watchers send; nobody closes it.
	seen chan Sighting
}

// NewNemesis returns a nemesis for a plan against workers of these names.
func NewNemesis(p Plan, workers []string, kill KillFunc) *Nemesis {
	return &Nemesis{plan: p, workers: workers, kill: kill, seen: make(chan Sighting)}
}

// Offer shows the nemesis a sighting. One that no kill waits for is dropped: a
// moment that has passed is no moment. It never blocks and may be called by many
// goroutines.
func (n *Nemesis) Offer(s Sighting) {
	select {
	case n.seen <- s:
	default:
	}
}

// Run carries out the plan and returns what was struck, in order, when the plan
// is done or ctx ends. The end of ctx is no error: it heals.
func (n *Nemesis) Run(ctx context.Context) ([]Strike, error) {
	start := time.Now()
	var strikes []Strike
	for _, k := range n.plan.Kills {
		due := time.NewTimer(k.After - time.Since(start))
		select {
		case <-due.C:
		case <-ctx.Done():
			due.Stop()
			return strikes, nil
		}
		s, ok, err := n.strike(ctx, k)
		if err != nil {
			return strikes, fmt.Errorf("kill %s: %w", k, err)
		}
		if ok {
			s.At = time.Since(start)
			strikes = append(strikes, s)
		}
	}
	return strikes, nil
}

// strike carries out one kill. It is not carried out when ctx ends before its
// moment comes, or when its victim is down at any rate.
func (n *Nemesis) strike(ctx context.Context, k Kill) (Strike, bool, error) {
	s := Strike{Kill: k}
	for {
		switch {
		case k.Victim == Coordinator:
		case k.Moment == AtAnyTime:
			s.Name = n.workers[int(k.Pick)%len(n.workers)]
		default:
			seen, ok := n.await(ctx, k.Moment)
			if !ok {
				return s, false, nil
			}
			s.Name, s.Sighting = seen.Worker, &seen
		}
		err := n.kill(k.Victim, s.Name)
		switch {
		case err == nil:
			return s, true, nil
		case !errors.Is(err, ErrGone):
			return s, false, err
		case s.Sighting == nil:
			return s, false, nil
		}
		// Whoever was seen was killed before: wait for the next moment.
	}
}

// await returns the next sighting of a moment.
func (n *Nemesis) await(ctx context.Context, m Moment) (Sighting, bool) {
	for {
		select {
		case s := <-n.seen:
			if s.Moment == m {
				return s, true
			}
		case <-ctx.Done():
			return Sighting{}, false
		}
	}
}
