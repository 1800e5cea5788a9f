package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/state"
)

// timekeeper judges the engine's clock. The machine's boot clock, which nobody
// can set, is its reference: the difference between the two may not move by
// more than the tolerance while the store is open.
type timekeeper struct {
	clock      clock.Clock
	downtime   time.Duration // before open, if it was remarkably long
	generation atomic.Uint64
	mark       atomic.Int64 // the latest time that a durable commit was decided at, ms

	mu       sync.Mutex
	offset   int64 // engine clock minus boot clock when the store opened, ms
	seen     int64 // the engine's clock when last read, ms
	seenBoot int64
	err      error
}

func (t *timekeeper) boot() int64 { return t.clock.Boot().Milliseconds() }

func (t *timekeeper) start(c clock.Clock, now int64) {
	t.clock = c
	t.rebase(now)
}

func (t *timekeeper) rebase(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seenBoot = t.boot()
	t.offset, t.seen, t.err = now-t.seenBoot, now, nil
}

// advance lifts the mark.
func (t *timekeeper) advance(mark int64) {
	for {
		old := t.mark.Load()
		if mark <= old || t.mark.CompareAndSwap(old, mark) {
			return
		}
	}
}

// opened compares the mark that was found in the engine with its clock: a
// leap of the clock across a restart looks like downtime.
func (t *timekeeper) opened() {
	if gap := t.seen - t.mark.Load(); t.mark.Load() != 0 && gap > downtimeMS {
		t.downtime = time.Duration(gap) * time.Millisecond
	}
}

// judge says why a time that the engine's clock shows cannot be trusted, nil
// if it can. mark is the last time that was decided on.
func (t *timekeeper) judge(now, mark int64) error { return t.judgeAt(now, t.boot(), mark) }

// judgeAt is judge with a reading of the boot clock, and remembers both.
func (t *timekeeper) judgeAt(now, boot, mark int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen, t.seenBoot, t.err = now, boot, nil
	moved := now - boot - t.offset
	switch {
	case moved > state.Tolerance || moved < -state.Tolerance:
		t.err = fmt.Errorf("%w: it moved by %v against the machine's boot clock; set it right, or accept it with 'counterfoil clock rebaseline'",
			state.ErrClock, (time.Duration(moved) * time.Millisecond).Round(time.Second))
	case now < mark-state.Tolerance:
		t.err = fmt.Errorf("%w: it is %v behind the last decision; set it right, or accept it with 'counterfoil clock rebaseline'",
			state.ErrClock, (time.Duration(mark-now) * time.Millisecond).Round(time.Second))
	}
	return t.err
}

// estimate gives the engine's time from the last reading, if that is not older
// than a minute.
func (t *timekeeper) estimate() (int64, bool) {
	boot := t.boot()
	t.mu.Lock()
	defer t.mu.Unlock()
	age := boot - t.seenBoot
	return t.seen + age, age >= 0 && age <= 60_000
}

func (t *timekeeper) last() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
