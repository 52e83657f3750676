// Testtally reads what go test -json writes and prints it for people: a line
// for each package, the output of what failed, and at the end
//
//	N passed, N failed
//
// where every test and subtest counts once. A package that fails without a
// failed test (it does not build, or its process died) counts as one failure,
// and so does a skipped test: here a missing dependency is a failure.
// It exits non-zero if anything failed or nothing ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	t := newTally(os.Stdout)
	err := t.read(os.Stdin)
	fmt.Fprintf(os.Stdout, "%d passed, %d failed\n", t.passed, t.failed)
	if err != nil {
		fmt.Fprintf(os.Stderr, "read test events: %v\n", err)
	}
	if err != nil || t.failed > 0 || t.passed == 0 {
		os.Exit(1)
	}
}

// An event is one line of go test -json (see go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

// test names one test of one package.
type test struct{ pkg, name string }

type tally struct {
	out            io.Writer
	passed, failed int
	output         map[test][]string // of what has not ended yet
	broken         map[string]bool   // packages that hold a failed test
}

func newTally(out io.Writer) *tally {
	return &tally{out: out, output: map[test][]string{}, broken: map[string]bool{}}
}

// read counts events until r ends. A line that is no event is printed as it is:
// go test writes some errors so.
func (t *tally) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				t.count(e)
			} else {
				fmt.Fprintf(t.out, "%s", line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (t *tally) count(e event) {
	key := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		t.output[key] = append(t.output[key], e.Output)
	case "build-output":
		fmt.Fprint(t.out, e.Output)
	case "pass":
		t.end(key, e, true)
	case "fail", "skip":
		t.end(key, e, e.Test == "" && e.Action == "skip") // a package without tests
	}
}

// end counts one test that ended, or prints the line of a package that did.
func (t *tally) end(key test, e event, ok bool) {
	defer delete(t.output, key)
	switch {
	case key.name != "" && ok:
		t.passed++
	case key.name != "":
		t.failed++
		t.broken[key.pkg] = true
		t.print(key)
	case ok:
		fmt.Fprintf(t.out, "%-5s %s %.1fs\n", e.Action, key.pkg, e.Elapsed)
	default:
		if !t.broken[key.pkg] {
			t.failed++
		}
		t.print(key)
	}
}

// print writes the kept output of a test or, without a name, of a package.
func (t *tally) print(key test) {
	for _, text := range t.output[key] {
		fmt.Fprint(t.out, text)
	}
}
