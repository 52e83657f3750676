// Command entail is the command line of Entail and its all-in-one server.
package main

import "os"

func main() { os.Exit(Main()) }

// Main runs the command line of this process and returns its exit code.
func Main() int {
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		environ: os.Environ(), lookup: os.LookupEnv,
	}
	return a.execute(os.Args[1:])
}
