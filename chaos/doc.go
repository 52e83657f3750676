// Package chaos breaks a running deployment on a seeded schedule and judges by
// the logs what came of it.
//
//	Plan      when to kill what: pure, the same for the same seed
//	Watcher   tells from a session's events when a delegating call is open
//	Nemesis   carries a plan out at the moments that watchers see
//	Verdict   what the raw logs say afterwards
//
// The package starts, finds and signals no process: whoever runs it hands in a
// function that kills, and a [verify.Source] to read the logs from. So the same
// plan serves processes on one machine, containers, and hosts.
//
// A run heals before it is judged: no more kills, then everything that was begun
// is brought to its end, then [Judge] reads. The verdict holds what verify finds
// and what only a finished run can be asked for: every session ended, one child
// for each allowed delegating call, nothing twice. [Floors] make a run that broke
// nothing a failed one.
//
// # Not promised
//
// A seed fixes the plan. What a kill hits also depends on the machine, so a seed
// repeats the schedule of a failure, not always the failure.
//
// # Example
//
//	n := chaos.NewNemesis(chaos.NewPlan(seed, 20*time.Second), workers, kill)
//	go watch(func(s chaos.Sighting) { n.Offer(s) })
//	strikes, err := n.Run(ctx)
//	...
//	v, err := chaos.Judge(ctx, source, verify.Options{})
//	...
//	err = v.Check(chaos.Floors{Trees: 3, Delegations: 10, HitAtCall: 1, HitAtGenesis: 1})
package chaos
