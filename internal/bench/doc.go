// Package bench measures what Entail costs on top of what it stands on.
//
// A figure is a ratio: Entail's rate over the rate of the raw thing below it, or
// for decisions and forks the cost on a long log over the cost on a short one. A
// ratio is the median of five pairs, raw and ours in turn, in one run on one
// machine, so that load and clock hit both sides alike. The raw side is tuned as
// ours is: the same identity, the same headers, the same bytes, the same
// compare-and-set. Rates are printed beside the ratio; they depend on the machine
// and no target speaks of them, but for decisions, whose target is a time.
package bench
