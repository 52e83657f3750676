package main

import (
	"fmt"
	"slices"
	"strings"
)

// facts are what was seen, and whether each is as it must be.
type facts []fact

type fact struct {
	where string // log or disk
	what  string
	ok    bool
}

// String marks what is not as it must be.
func (f fact) String() string {
	if f.ok {
		return f.where + ": " + f.what
	}
	return "NOT OK " + f.where + ": " + f.what
}

func (f *facts) log(ok bool, format string, args ...any) {
	*f = append(*f, fact{"log", fmt.Sprintf(format, args...), ok})
}

func (f *facts) disk(ok bool, format string, args ...any) {
	*f = append(*f, fact{"disk", fmt.Sprintf(format, args...), ok})
}

// ok reports whether something was seen and all of it is as it must be.
func (f facts) ok() bool {
	return len(f) > 0 && !slices.ContainsFunc(f, func(x fact) bool { return !x.ok })
}

func (f facts) text() string {
	parts := make([]string, len(f))
	for i, x := range f {
		parts[i] = x.String()
	}
	return strings.Join(parts, "; ")
}
