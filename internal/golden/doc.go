// Package golden keeps logs and mirrors that earlier builds wrote, and holds this
// build to reading them: what was stored once stays readable. It has no other code.
//
// Each directory under testdata is one deployment, written by one build and never
// again: the raw records of its stream and the directory of its mirror. The command
// below writes the newest directory if it is not there; a new version of either
// format gets a new one beside the old.
package golden

//go:generate go test -count=1 -run TestWrite . -write=format-2
