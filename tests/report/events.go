package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// event is one line of `go test -json` (go doc cmd/test2json); build output has ImportPath in place of Package.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// readEvents calls each for every event of r and other for every line that is none.
func readEvents(r io.Reader, each func(event), other func(line string)) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			var e event
			if line[0] == '{' && json.Unmarshal(line, &e) == nil {
				each(e)
			} else if other != nil {
				other(string(line))
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

// maxOutput bounds what is kept of one test until it ends; a test that prints more loses its beginning.
const maxOutput = 256 << 10

// follow prints, of a stream of events, each package's closing line, build errors, and the output of tests that failed or
// never ended. It returns an error if anything failed.
func follow(in io.Reader, out io.Writer) error {
	pending := map[[2]string][]byte{} // by package and test
	failed := 0
	show := func(key [2]string) {
		out.Write(pending[key]) //nolint:errcheck // A closed standard output leaves nobody to tell.
		delete(pending, key)
	}
	err := readEvents(in, func(e event) {
		key := [2]string{e.Package, e.Test}
		switch e.Action {
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "build-fail":
			failed++
		case "output":
			if e.Test == "" && closes(e.Output) {
				fmt.Fprint(out, e.Output)
				return
			}
			kept := append(pending[key], e.Output...)
			pending[key] = kept[max(0, len(kept)-maxOutput):]
		case "pass", "skip":
			delete(pending, key)
		case "fail":
			failed++
			show(key)
			if e.Test == "" {
				for other := range pending {
					if other[0] == e.Package {
						show(other)
					}
				}
			}
		}
	}, func(line string) { fmt.Fprintln(out, line) })
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d failures", failed)
	}
	return err
}

// closes reports whether a line is a package's verdict.
func closes(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "FAIL\t")
}
