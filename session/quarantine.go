package session

import "fmt"

// Fatal is how many incarnations of workers have to die on a session, at one
// point of its log, before it is quarantined (ARCHITECTURE 4).
const Fatal = 3

// Quarantine says why nobody may drive a session, empty if somebody may: its last
// drivers, of [Fatal] incarnations or more, died where its open turn stands now.
// No event says so; it is read from the log each time, and all that is asked of
// anybody else is whether an incarnation is alive. A driver died there if
//
//   - its claim was in force when something last brought the turn on, or was made
//     after that: claims, wakes, addresses of model requests and runtime context
//     bring nothing on, every other event of class turn does;
//   - it did not leave the turn with a turn/deferred, as one that gives up does;
//   - its incarnation is not alive.
//
// A nudge by a person or a program, which is what releases the session, counts out
// all that died before it. A turn that is to be stopped is never quarantined: its
// end does not lead by where its drivers died.
//
// Events are those of the open turn, from the one before its turn/start on. What
// stands before it is passed over, so that the whole log may be given too.
func Quarantine(s State, events []Event, alive func(Claim) bool) string {
	if s.Ended != nil || s.Open == nil || s.Open.Parked || s.Stopping() || s.Open.Attempts < Fatal {
		return ""
	}
	died := map[[2]string]bool{}
	for _, c := range fruitless(s.Open.StartSeq, events) {
		if alive(c) {
			return ""
		}
		died[[2]string{c.Worker, c.Incarnation}] = true
	}
	if len(died) < Fatal {
		return ""
	}
	return fmt.Sprintf("quarantined: %d incarnations of workers died on turn %d at the same point, %s of %s last: release the session to try again, or cancel it",
		len(died), s.Turn, s.Claim.Incarnation, s.Claim.Worker)
}

// fruitless lists the claims of a turn since it was last brought on, with the one
// that was in force then, but for those that were given up.
func fruitless(start Seq, events []Event) []Claim {
	var claims []Claim
	for _, e := range events {
		if e.Seq+1 < start {
			continue
		}
		switch p := e.Payload.(type) {
		case nil, *TurnWake, *RequestHeader, *UserMessage:
		case *Claim:
			claims = append(claims, *p)
		case *TurnDeferred:
			claims = claims[:max(0, len(claims)-1)]
		case *Nudge:
			if p.By != nil && p.By.Kind != CoordinatorOwn {
				claims = nil
			}
		default:
			if e.Class == ClassTurn {
				claims = claims[max(0, len(claims)-1):]
			}
		}
	}
	return claims
}
