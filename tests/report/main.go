// Report reads what `go test -json` printed.
//
//	go test -json ./... | report -live             print packages and failures as they come
//	report -require tests/required.txt FILE...     afterwards: every required suite ran, or exit 1
//
// With -require it closes with the line "N passed, N failed, N skipped".
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	live := flag.Bool("live", false, "read events from standard input and print packages and failures")
	require := flag.String("require", "", "`file` that lists the suites which must have run; the arguments are files of events")
	flag.Parse()

	var err error
	switch {
	case *live && *require == "" && flag.NArg() == 0:
		err = follow(os.Stdin, os.Stdout)
	case !*live && *require != "":
		err = requireFiles(*require, flag.Args(), os.Stdout)
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// requireFiles sums up the events of all files and checks them against the list of required suites.
func requireFiles(list string, names []string, out io.Writer) error {
	file, err := os.Open(list)
	if err != nil {
		return err
	}
	defer file.Close()
	suites, err := parseSuites(file)
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	tally := newTally()
	for _, name := range names {
		if err := tallyFile(tally, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return tally.summary(suites, out)
}

func tallyFile(t *tally, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return readEvents(file, t.add, nil)
}
