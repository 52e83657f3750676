package agent

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"
)

// due are hints that were put back, the one that comes back first on top.
type due []comeback

type comeback struct {
	at         time.Time
	deliveries uint64
}

func (d due) Len() int           { return len(d) }
func (d due) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d due) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *due) Push(x any)        { *d = append(*d, x.(comeback)) }
func (d *due) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// before gives a queue so many hints, which hands out what comes back before what
// is new, as the server does, to one slot that takes its time for each and puts it
// back. When each was put back once, a new one is added now and then; it returns
// the most that were handed out before one of them.
func before(hints int, took time.Duration, away func(now time.Time, deliveries uint64) time.Duration) int {
	now := time.UnixMilli(0)
	var queue due
	put := func(deliveries uint64) {
		now = now.Add(took)
		heap.Push(&queue, comeback{now.Add(away(now, deliveries)), deliveries + 1})
	}
	again := func() bool {
		if len(queue) == 0 || queue[0].at.After(now) {
			return false
		}
		put(heap.Pop(&queue).(comeback).deliveries)
		return true
	}
	for looks := 0; hints > 0 && looks < 200_000; looks++ {
		if !again() {
			put(1)
			hints--
		}
	}
	most := 0
	for range 20 {
		for arrives := now.Add(7 * time.Second); now.Before(arrives); {
			if !again() {
				now = queue[0].at
			}
		}
		n := 0
		for n < 10_000 && again() {
			n++
		}
		most = max(most, n)
	}
	return most
}

// Twenty thousand hints that were put back do not stand before a new one: a
// thousandth of them does at most, whether a look at one takes one millisecond or
// forty. Put back for half a lease each, as they were once, thousands do.
func TestPutBacksLetNewHintsThrough(t *testing.T) {
	t.Parallel()
	const hints = 20_000
	const lease = 30 * time.Second
	chance := rand.New(rand.NewPCG(1, 2)).Float64 // the same each time
	for _, took := range []time.Duration{time.Millisecond, 40 * time.Millisecond} {
		b := &putBack{lease: lease}
		paced := before(hints, took, func(now time.Time, n uint64) time.Duration { return b.away(now, n, took, longestAway, chance()) })
		if paced > hints/1000 {
			t.Errorf("a look takes %v: %d hints were handed out before a new one, want %d at most", took, paced, hints/1000)
		}
	}
	control := before(hints, 5*time.Millisecond, func(time.Time, uint64) time.Duration { return lease / 2 })
	if control < hints/4 {
		t.Errorf("put back for half a lease, %d were handed out before a new one: the test tells nothing apart", control)
	}
}

// The time away grows with each delivery up to a bound, a quarter more or less at
// random; the bound for a session that somebody drives is the lease.
func TestPutBackGrowsToABound(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second
	want := []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, time.Minute, time.Minute, time.Minute, time.Minute, time.Minute}
	for i, d := range want {
		n := uint64(i + 1)
		for chance, factor := range map[float64]float64{0: 0.75, 0.5: 1, 1: 1.25} {
			b := &putBack{lease: lease} // that nothing came back to yet
			if got := b.away(time.UnixMilli(0), n, 0, longestAway, chance); got != time.Duration(factor*float64(d)) {
				t.Errorf("delivery %d, chance %v: away for %v, want %v of %v", n, chance, got, factor, d)
			}
		}
		b := &putBack{lease: lease}
		if got := b.away(time.UnixMilli(0), n, 0, lease, 0.5); got != min(d, lease) {
			t.Errorf("delivery %d of a session that is driven: away for %v, want %v", n, got, min(d, lease))
		}
	}
}
