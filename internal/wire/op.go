package wire

import "time"

// Op is what a permitted call does. Exactly one field is set.
type Op struct {
	Shell *Shell `json:",omitempty"`
	Read  *Read  `json:",omitempty"`
	Write *Write `json:",omitempty"`
	Edit  *Edit  `json:",omitempty"`
	List  *List  `json:",omitempty"`
	Glob  *Glob  `json:",omitempty"`
	Grep  *Grep  `json:",omitempty"`
}

// Shell runs a command line with the workspace root as working directory.
type Shell struct {
	Command string
	// Argv is a program with its arguments, run without a shell in place of Command.
	// A name without a slash is looked up in the call's PATH.
	Argv []string `json:",omitempty"`
	// Timeout ends the call and all it started. Default the deployment's
	// confinement.limits.time.
	Timeout time.Duration
}

// Read returns lines of a text file.
type Read struct {
	Path string
	// Offset is the first line wanted, counted from 1. Default 1.
	Offset int
	// Limit is how many lines are wanted at most. Default as many as fit.
	Limit int
}

// Write replaces a file, or creates it together with missing parents.
type Write struct{ Path, Content string }

// Edit replaces text in a file: the one occurrence of Old, or, with All, each.
type Edit struct {
	Path, Old, New string
	All            bool
}

// List names the entries of a directory. An empty Path is the workspace root.
type List struct{ Path string }

// Glob names the files that match a pattern, in which ** stands for any number
// of directories.
type Glob struct{ Pattern string }

// Grep shows the lines that match an RE2 pattern in the files under Path. An
// empty Path is the workspace root.
type Grep struct{ Pattern, Path string }
