package agent

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// longestAway is how long a hint stays away at most, but for the random part
	// and the pace.
	longestAway = time.Minute
	// comebackPace is the least time between two hints that one worker lets come
	// back. A server hands out what comes back before what is new: without a pace
	// any number of sessions that nobody may take would stand before one that is
	// asked for now. With it they take up a part of a worker's time, whatever
	// their number, and what grows with that is how long each stays away.
	comebackPace = 20 * time.Millisecond
	// slowestPace bounds the pace where looking at a hint takes long: four times as
	// long as that, so that looking takes a quarter of one slot at most.
	slowestPace = 200 * time.Millisecond
	// mostDoublings is how often the time away doubles.
	mostDoublings = 6
)

// putBack says how long a hint stays away that was put back: the longer the more
// often it was given out, a quarter more or less at random, and at a pace.
type putBack struct {
	lease time.Duration

	mu   sync.Mutex
	free time.Time // when the next hint may come back; guarded by mu
}

// away is the time for a hint that was given out so often and took so long to look
// at. Most bounds it before chance, from 0 to 1, and pace are added.
func (b *putBack) away(now time.Time, deliveries uint64, took, most time.Duration, chance float64) time.Duration {
	return b.paced(now, min(b.lease/4<<min(deliveries, mostDoublings), most), took, chance)
}

// paced adds chance and pace to a time away.
func (b *putBack) paced(now time.Time, away, took time.Duration, chance float64) time.Duration {
	d := float64(away)
	at := now.Add(time.Duration(d * (0.75 + chance/2)))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(min(max(comebackPace, 4*took), slowestPace))
	if at.Before(b.free) {
		at = b.free
	}
	return at.Sub(now)
}

// waiting is for a session that no worker may take, or that could not be driven.
func (b *putBack) waiting(deliveries uint64, took time.Duration) time.Duration {
	return b.away(time.Now(), deliveries, took, longestAway, rand.Float64()) //nolint:gosec // spreads load, guards nothing
}

// unsuited is for a session that another worker may suit: it is to find that one soon
// if there is one, and to stay away as any other if there is none.
func (b *putBack) unsuited(deliveries uint64, took time.Duration) time.Duration {
	const first, doublings = 50 * time.Millisecond, 11
	return b.paced(time.Now(), min(first<<min(deliveries, doublings), longestAway), took, rand.Float64()) //nolint:gosec // spreads load, guards nothing
}

// busy is for a session that somebody drives: should its driver die, its hint is
// what finds it first. So it comes back when the last sign of life lapses that was
// seen of the driver, by the server's clock: a clock that differs makes it come early,
// and again, or late by a lease at most.
func (b *putBack) busy(deliveries uint64, lapses time.Time) time.Duration {
	now, chance := time.Now(), rand.Float64() //nolint:gosec // spreads load, guards nothing
	if lapses.IsZero() {
		return b.away(now, deliveries, 0, b.lease, chance)
	}
	const least, spread, even = 50 * time.Millisecond, 100 * time.Millisecond, 0.5
	away := min(max(lapses.Sub(now), 0)+least, b.lease)
	return b.paced(now, away, 0, even) + time.Duration(chance*float64(spread))
}
