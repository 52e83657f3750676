package races

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// Explain says in words what speaks against a history of one session, in the
// order of the stream: the first record that the one before does not lead to, the
// answers that came before what they answer for, and what was said to hold already
// and held at no time that it could have been said of. It is for people to begin
// with; the verdict is porcupine's.
func (s Spec) Explain(history []porcupine.Operation) []string {
	var start State
	var wrote, held []porcupine.Operation
	var out []string
	for _, op := range history {
		in, end := as[Input](op.Input), as[Output](op.Output)
		switch {
		case in.Kind == Begin:
			start = end.Start
		case end.Record != nil:
			wrote = append(wrote, op)
		case end.Ending == Done && in.Kind == Switch:
			held = append(held, op)
		case end.Ending == Done:
			out = append(out, "acknowledged, and not in the stream: "+at(op))
		}
	}
	slices.SortFunc(wrote, func(a, b porcupine.Operation) int {
		return cmp.Compare(as[Output](a.Output).Record.StreamSeq, as[Output](b.Output).Record.StreamSeq)
	})
	states := []State{start}
	for i, op := range wrote {
		if i > 0 && op.Return < wrote[i-1].Call {
			out = append(out, fmt.Sprintf("ended before what it stands behind began: %s, behind %s", at(op), at(wrote[i-1])))
		}
		now := states[len(states)-1]
		next, ok := s.step(now, as[Input](op.Input), as[Output](op.Output))
		if !ok {
			return append(out, fmt.Sprintf("does not follow %+v: %s; it should write %+v", now, at(op), s.write(now, as[Input](op.Input))))
		}
		states = append(states, next)
	}
	for _, op := range held {
		if !s.heldAt(op, wrote, states) {
			out = append(out, "held at no time that it could be said of: "+at(op))
		}
	}
	return out
}

// heldAt reports whether a switch that wrote nothing had nothing to write in one of
// the states that its caller may have met. State i is the one before record i.
func (s Spec) heldAt(op porcupine.Operation, wrote []porcupine.Operation, states []State) bool {
	for i, now := range states {
		late := i < len(wrote) && wrote[i].Return < op.Call
		early := i > 0 && op.Return < wrote[i-1].Call
		if !late && !early && s.write(now, as[Input](op.Input)).Events == 0 {
			return true
		}
	}
	return false
}

func at(op porcupine.Operation) string {
	return fmt.Sprintf("%s (client %d, %d to %d ns)", describe(as[Input](op.Input), as[Output](op.Output)), op.ClientId, op.Call, op.Return)
}
