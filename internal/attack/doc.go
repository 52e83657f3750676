// Package attack tries what a confined call must not be able to do.
//
// An attempt is one thing tried by one process, so that a kernel which kills for it
// ends nothing else. It aims at a yard that a test made: files outside of the
// workspace, a victim process, servers, secrets. Every attempt has directories of
// its own there, named after it, so that whatever changed outside is known to be its
// work.
//
//	Attempts   what there is to try, by name
//	Run        tries them one after another and says how each ended
//	Victim     is a process outside, with servers and a secret, until it is told to go
//
// An attempt succeeds if it got what it wanted and not if a system call returned
// zero: one that reads looks for the secret, one that writes writes. What an attempt
// changes on the machine as a whole it undoes. Run without a fence, as root, every
// one succeeds, or what it shows of a fence is nothing.
//
// The program of this package is a small one of its own: a process is started for
// every attempt.
package attack
