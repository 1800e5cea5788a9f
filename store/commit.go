package store

import (
	"slices"

	"github.com/counterfoil/counterfoil/state"
)

// commit is a decision that the engine was given.
//
// Several of one scope may be under way at once, each decided on what the one
// before it is to write. Every commit replaces this instance's writer record, and
// is applied only if that still is as it was decided on. So those that are applied
// form a chain: a commit was applied if it, or one that was decided on it, was
// acknowledged or has its version in the writer record. For that no two decisions
// have the same version, those that come to nothing included: another one may
// have been decided on what they were to write.
type commit struct {
	version state.Version // in everything that it writes
	on      *commit       // whose writer record it replaces; nil if that was acknowledged
	tenure  int           // of the seat that it was decided in
	results []result
	applied bool // known to be
	over    bool // its group was told that nobody knows
}

// decided notes a decision that may be applied from now on, taken on a writer
// record of version on. scope.mu is held, here and below.
func (sc *scope) decided(version, on state.Version, results []result) *commit {
	c := &commit{version: version, on: sc.commitOf(on), tenure: sc.tenure, results: results}
	sc.open = append(sc.open, c)
	return c
}

// commitOf is the open commit of a version, nil if there is none.
func (sc *scope) commitOf(version state.Version) *commit {
	for _, c := range sc.open {
		if c.version == version {
			return c
		}
	}
	return nil
}

// dropped notes that a commit was not applied and never will be.
func (sc *scope) dropped(c *commit) {
	sc.open = slices.DeleteFunc(sc.open, func(o *commit) bool { return o == c })
}

// found notes the version that this instance's writer record was read with: it
// tells of the commits up to it that they were applied. What comes after it may
// be yet to come.
func (sc *scope) found(version state.Version) {
	for c := sc.commitOf(version); c != nil; c = c.on {
		c.applied = true
	}
}

// acknowledged notes that a commit was applied, durably, and all before it. One
// of them that hears of it later than those behind it changes nothing any more.
func (sc *scope) acknowledged(c *commit) {
	if !slices.Contains(sc.open, c) {
		return
	}
	sc.acked = c.version
	for c != nil {
		c.applied = true
		sc.dropped(c)
		c, c.on = c.on, nil
	}
}

// replaced is acknowledged for a commit that was just made. What was given up
// before it and is not among those that it was decided on will never be applied:
// the writer record is another now.
func (sc *scope) replaced(c *commit) {
	sc.acknowledged(c)
	sc.open = slices.DeleteFunc(sc.open, func(o *commit) bool { return o.over })
}
