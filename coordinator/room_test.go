package coordinator_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// An inbox holds 256 unconsumed messages (ARCHITECTURE 4), however many send at
// once. What is refused leaves nothing, what was accepted is confirmed ever again,
// and what nobody may be refused still goes in: notices, interrupts, cancels.
func TestInboxHoldsSoMany(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, func(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) })
	const most, senders = 256, 300
	root := d.root(func(in *client.CreateRequest) { in.Prompt = "" })
	send := func(i int) error {
		return d.api.Call(t.Context(), client.MethodSend, client.SendRequest{
			Head: head, ID: root, MessageID: fmt.Sprintf("m%d", i), Content: "hello",
		}, nil)
	}
	answers := make([]error, senders)
	var all sync.WaitGroup
	for hand := range 16 {
		all.Go(func() {
			for i := hand; i < senders; i += 16 {
				answers[i] = send(i)
			}
		})
	}
	all.Wait()
	accepted, refused := -1, -1
	n := 0
	for i, err := range answers {
		switch client.CodeOf(err) {
		case "":
			d.must(err)
			n, accepted = n+1, i
		case client.CodeInboxFull:
			refused = i
			if !strings.Contains(err.Error(), "wait until it has read some") {
				t.Errorf("the refusal names no way out: %v", err)
			}
		default:
			t.Errorf("message %d: %v", i, err)
		}
	}
	if s := d.show(root); n != most || s.Pending != most {
		t.Fatalf("%d messages were accepted, %d are pending, want %d", n, s.Pending, most)
	}
	before, err := d.log.Info(t.Context(), 0)
	d.must(err)
	if err := send(refused); client.CodeOf(err) != client.CodeInboxFull {
		t.Errorf("message %d again: %v, want %s", refused, err, client.CodeInboxFull)
	}
	if err := send(accepted); err != nil {
		t.Errorf("message %d, which was accepted, again: %v, want it confirmed", accepted, err)
	}
	after, err := d.log.Info(t.Context(), 0)
	d.must(err)
	if before.LastSeq != after.LastSeq {
		t.Errorf("the stream went from %d to %d: want nothing written", before.LastSeq, after.LastSeq)
	}
	for _, l := range d.lines(root) {
		if l.Type == session.TypeUserMessage && strings.Contains(string(l.Data), fmt.Sprintf(`"m%d"`, refused)) {
			t.Errorf("the refused message %d stands in the log", refused)
		}
	}

	// Reading makes room, for as many as were read.
	d.turn(root, func(s session.State) []session.Payload {
		return []session.Payload{
			&session.Claim{Epoch: s.Epoch + 1, Worker: "w1", Incarnation: "i1", Cause: session.CauseStart},
			&session.TurnStart{Turn: 1}, &session.Consumed{Turn: 1, Seqs: []session.Seq{s.Pending[0].Seq}},
		}
	})
	d.catchUp()
	d.must(send(refused))
	if err := send(senders); client.CodeOf(err) != client.CodeInboxFull {
		t.Errorf("one more than were read: %v, want %s", err, client.CodeInboxFull)
	}

	child := d.spawn(root)
	d.claim(child)
	ended := d.endTurn(child, &session.End{Outcome: session.OutcomeCompleted})
	eventually(t, "the child's notice goes into the full inbox", func() bool {
		// A coordinator whose mirror is behind sees nothing owed.
		d.must(d.worker.Call(t.Context(), client.MethodSettled, client.SettledRequest{Head: head, Session: child}, nil))
		d.catchUp()
		v, err := d.store.View(t.Context(), root, 0)
		d.must(err)
		return v.Has(session.NoticeID(child, 1, ended.LastEnd.Seq))
	})
	d.must(d.api.Call(t.Context(), client.MethodInterrupt, client.StopRequest{Head: head, ID: root, RequestID: "stop"}, nil))
	d.must(d.api.Call(t.Context(), client.MethodCancel, client.StopRequest{Head: head, ID: root, RequestID: "end"}, nil))
	counts := map[session.Type]int{}
	for _, l := range d.lines(root) {
		counts[l.Type]++
	}
	if counts[session.TypeInterrupt] != 1 || counts[session.TypeCancel] != 1 || counts[session.TypeClosed] != 1 {
		t.Errorf("the log has %v, want an interrupt, a closing and a cancel", counts)
	}
	var pending []session.Seq
	for _, p := range d.turn(root, func(s session.State) []session.Payload {
		return []session.Payload{&session.TurnEnd{Turn: 1, Reason: session.EndReason{Kind: session.EndAborted}}}
	}).Pending {
		pending = append(pending, p.Seq)
	}
	s := d.turn(root, func(session.State) []session.Payload {
		return []session.Payload{&session.End{Outcome: session.OutcomeCancelled, Cancelled: pending}}
	})
	if s.Ended == nil || len(pending) != most+1 {
		t.Errorf("it ended %+v with %d messages cancelled by name, want %d and the notice", s.Ended, len(pending), most)
	}
}

// The cap is a setting of the deployment.
func TestInboxCapIsASetting(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, func(s *policy.Settings) { s.Lease, s.Caps.Inbox = policy.Duration(10*time.Minute), 1 })
	root := d.root()
	err := d.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: root, MessageID: ulid.Make().String(), Content: "hello"}, nil)
	if client.CodeOf(err) != client.CodeInboxFull {
		t.Errorf("a message beside the unread prompt: %v, want %s", err, client.CodeInboxFull)
	}
}
