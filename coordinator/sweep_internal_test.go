package coordinator

import (
	"testing"
	"time"
)

// Nudges that bring nothing become rarer, up to a bound: a session that waits for
// days is nudged ever again and does not fill its log.
func TestNudgesBecomeRarer(t *testing.T) {
	t.Parallel()
	const lease, day = 30 * time.Second, 24 * time.Hour
	start := time.UnixMilli(0)
	p := progress{since: start}
	var gaps []time.Duration
	for now := start; now.Before(start.Add(day)); now = now.Add(lease) {
		if p.due(now, lease) {
			gaps = append(gaps, now.Sub(p.since))
			p = progress{since: now, nudges: min(p.nudges+1, mostNudgeDoublings)} // as the log's end says
		}
	}
	if gaps[0] != 2*lease {
		t.Errorf("the first nudge came after %v, want two leases", gaps[0])
	}
	for i, gap := range gaps[1:] {
		if gap < gaps[i] || gap > 2*gaps[i] || gap > 128*lease {
			t.Errorf("nudge %d came after %v, the one before it after %v: want it to grow to at most 128 leases", i+2, gap, gaps[i])
		}
	}
	if len(gaps) < 20 || len(gaps) > 40 { // one each minute would be 1440
		t.Errorf("%d nudges in a day, want some, and few", len(gaps))
	}
}
