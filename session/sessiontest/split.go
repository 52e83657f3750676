package sessiontest

import "github.com/entail-fleet/entail/session"

// Split returns how many of a session's next events may be one record, about n:
// events of one class, a claim first only, an assistant message with all its calls.
func Split(s session.State, events []session.Event, n int) int {
	end := 0
	for i, e := range events {
		claim := e.Type == session.TypeClaim
		if i > 0 && (claim || e.Class != events[0].Class) {
			break
		}
		next, err := session.Fold(s, e)
		if err != nil {
			break
		}
		s = next
		if s.Open == nil || s.Open.Due == 0 {
			end = i + 1
			if end >= n {
				break
			}
		}
	}
	return end
}
