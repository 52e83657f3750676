package chaos_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/chaos"
	"github.com/entail-fleet/entail/session"
)

// shoot runs a plan in a bubble of its own time and shows it sightings, one each
// second, until it is done or the run has lasted ten seconds.
func shoot(t *testing.T, kill chaos.KillFunc, kills []chaos.Kill, seen ...chaos.Sighting) (strikes []chaos.Strike, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		n := chaos.NewNemesis(chaos.Plan{Kills: kills}, []string{"w1", "w2"}, kill)
		done := make(chan struct{})
		go func() {
			defer close(done)
			strikes, err = n.Run(ctx)
		}()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for _, s := range seen {
			<-tick.C
			synctest.Wait() // whoever waits for a sighting does
			n.Offer(s)
		}
		<-done
	})
	return strikes, err
}

func TestNemesisStrikesAtTheMoment(t *testing.T) {
	t.Parallel()
	at := func(m chaos.Moment, worker string) chaos.Sighting {
		return chaos.Sighting{Session: "s", Call: "1.1.0", Moment: m, Worker: worker}
	}
	call := chaos.Kill{After: 1500 * time.Millisecond, Victim: chaos.Worker, Moment: chaos.AtCall}
	anyTime := chaos.Kill{After: time.Second, Victim: chaos.Worker, Moment: chaos.AtAnyTime, Pick: 3}
	coordinator := chaos.Kill{After: 2 * time.Second, Victim: chaos.Coordinator, Moment: chaos.AtAnyTime}
	struck := at(chaos.AtCall, "w2")
	tests := []struct {
		name  string
		kills []chaos.Kill
		gone  string // a worker that is down
		seen  []chaos.Sighting
		want  []chaos.Strike
	}{
		{
			"one that passed before it was due is not taken, another moment neither",
			[]chaos.Kill{call},
			"",
			[]chaos.Sighting{at(chaos.AtCall, "w1"), at(chaos.AtGenesis, "w1"), at(chaos.AtCall, "w2"), at(chaos.AtCall, "w1")},
			[]chaos.Strike{{Kill: call, At: 3 * time.Second, Name: "w2", Sighting: &struck}},
		},
		{
			"a dead worker is not killed twice, the next moment counts",
			[]chaos.Kill{call},
			"w1",
			[]chaos.Sighting{at(chaos.AtGenesis, "w1"), at(chaos.AtCall, "w1"), at(chaos.AtCall, "w2")},
			[]chaos.Strike{{Kill: call, At: 3 * time.Second, Name: "w2", Sighting: &struck}},
		},
		{"the run ends before the moment comes", []chaos.Kill{call}, "", nil, nil},
		{
			"at any time nothing is awaited",
			[]chaos.Kill{anyTime, coordinator},
			"",
			nil,
			[]chaos.Strike{{Kill: anyTime, At: time.Second, Name: "w2"}, {Kill: coordinator, At: 2 * time.Second}},
		},
		{"a worker that is down at any time is left alone", []chaos.Kill{anyTime}, "w2", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			kill := func(_ chaos.Victim, name string) error {
				if name != "" && name == tt.gone {
					return chaos.ErrGone
				}
				return nil
			}
			got, err := shoot(t, kill, tt.kills, tt.seen...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("strikes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNemesisTellsThatItCannotKill(t *testing.T) {
	t.Parallel()
	denied := errors.New("not permitted")
	_, err := shoot(t, func(chaos.Victim, string) error { return denied },
		[]chaos.Kill{{After: time.Second, Victim: chaos.Coordinator, Moment: chaos.AtAnyTime}})
	if !errors.Is(err, denied) {
		t.Errorf("Run() = %v, want %v", err, denied)
	}
}

func TestWatcherSeesOpenDelegatingCalls(t *testing.T) {
	t.Parallel()
	const id = session.ID("s")
	event := func(p session.Payload) session.Event { return session.Event{Payload: p} }
	claim := event(&session.Claim{Worker: "w1"})
	call := event(&session.ToolCall{CallID: "1.1.0", Name: session.ToolDelegate})
	shell := event(&session.ToolCall{CallID: "1.1.1", Name: "bash"})
	genesis := event(&session.ToolDecision{CallID: "1.1.0", Verdict: session.Allow, Child: "s-c"})
	result := event(&session.ToolResult{CallID: "1.1.0"})
	park := event(&session.TurnPark{})
	sighting := func(m chaos.Moment) []chaos.Sighting {
		return []chaos.Sighting{{Session: id, Call: "1.1.0", Moment: m, Worker: "w1"}}
	}
	tests := []struct {
		name  string
		looks [][]session.Event
		want  [][]chaos.Sighting // one for each look
	}{
		{"call, then genesis", [][]session.Event{{claim, call}, {genesis}, {result}}, [][]chaos.Sighting{sighting(chaos.AtCall), sighting(chaos.AtGenesis), nil}},
		{"both at once are the later moment", [][]session.Event{{claim, call, genesis}}, [][]chaos.Sighting{sighting(chaos.AtGenesis)}},
		{"what is over was not seen", [][]session.Event{{claim, call, genesis, result}}, [][]chaos.Sighting{nil}},
		{"another tool's call is none", [][]session.Event{{claim, shell}}, [][]chaos.Sighting{nil}},
		{"a parked turn is nobody's", [][]session.Event{{claim, call}, {genesis, park}}, [][]chaos.Sighting{sighting(chaos.AtCall), nil}},
		{"a moment is told once", [][]session.Event{{claim, call}, {shell}}, [][]chaos.Sighting{sighting(chaos.AtCall), nil}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := chaos.NewWatcher(id)
			for i, look := range tt.looks {
				if diff := cmp.Diff(tt.want[i], w.See(look...)); diff != "" {
					t.Errorf("look %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}
