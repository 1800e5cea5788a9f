package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/counterfoil/counterfoil"

// suite is one line of the list of required suites.
type suite struct {
	name  string
	pkg   string // import path
	tests *regexp.Regexp
	least int
}

// parseSuites reads lines of "name package regexp count"; empty lines and lines that begin with # are skipped.
func parseSuites(r io.Reader) ([]suite, error) {
	var suites []suite
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 4 {
			return nil, fmt.Errorf("line %d: want name, package, regular expression and count, have %d fields", number, len(fields))
		}
		tests, err := regexp.Compile(fields[2])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		least, err := strconv.Atoi(fields[3])
		if err != nil || least < 1 {
			return nil, fmt.Errorf("line %d: %q is not a count of 1 or more", number, fields[3])
		}
		pkg := module + strings.TrimPrefix(fields[1], ".")
		suites = append(suites, suite{name: fields[0], pkg: pkg, tests: tests, least: least})
	}
	return suites, lines.Err()
}

// tally keeps how each test, and each package as a whole (the empty test), ended.
type tally struct {
	ended map[[2]string]string // by package and test: pass, fail or skip
	said  map[[2]string]string // the last line that a test printed, until it passes
	built int                  // packages that did not build
}

func newTally() *tally {
	return &tally{ended: map[[2]string]string{}, said: map[[2]string]string{}}
}

func (t *tally) add(e event) {
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "output":
		if line := strings.TrimSpace(e.Output); line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			t.said[key] = line
		}
	case "pass":
		delete(t.said, key)
		t.ended[key] = e.Action
	case "fail", "skip":
		t.ended[key] = e.Action
	case "build-fail":
		t.built++
	}
}

// passed counts the tests of a suite that passed, as long as its package did.
func (t *tally) passed(s suite) int {
	if t.ended[[2]string{s.pkg, ""}] != "pass" {
		return 0
	}
	count := 0
	for key, how := range t.ended {
		if key[0] == s.pkg && key[1] != "" && how == "pass" && s.tests.MatchString(key[1]) {
			count++
		}
	}
	return count
}

// summary prints skipped tests, the table of required suites and the closing line; it fails if a suite fell short, a test or
// package failed, or nothing ran.
func (t *tally) summary(suites []suite, out io.Writer) error {
	count := map[string]int{}
	broken := t.built
	var skipped []string
	for key, how := range t.ended {
		switch {
		case key[1] != "":
			count[how]++
		case how == "fail":
			broken++
		}
		if key[1] != "" && how == "skip" {
			skipped = append(skipped, fmt.Sprintf("skipped: %s %s: %s", strings.TrimPrefix(key[0], module+"/"), key[1], t.said[key]))
		}
	}
	slices.Sort(skipped)
	for _, line := range skipped {
		fmt.Fprintln(out, line)
	}
	var problems []error
	for _, s := range suites {
		passed := t.passed(s)
		fmt.Fprintf(out, "suite %-14s %5d passed (at least %d) %s\n", s.name, passed, s.least, s.pkg)
		if passed < s.least {
			problems = append(problems, fmt.Errorf("suite %s did not run: %d tests of %s passed, at least %d must", s.name, passed, s.pkg, s.least))
		}
	}
	if broken > 0 || count["fail"] > 0 {
		problems = append(problems, fmt.Errorf("%d tests and %d packages failed", count["fail"], broken))
	}
	if count["pass"] == 0 {
		problems = append(problems, errors.New("no test ran"))
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", count["pass"], max(count["fail"], min(broken, 1)), count["skip"])
	return errors.Join(problems...)
}
