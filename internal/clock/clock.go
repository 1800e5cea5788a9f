// Package clock is the only place of the product that asks the operating system for the time.
//
// Two clocks are read. The wall clock says when something is due and can be stepped by an operator or by NTP. The
// boot clock (CLOCK_BOOTTIME) only ever goes forward, also while the machine sleeps, and cannot be set; comparing
// the two shows a step of the wall clock.
package clock

import (
	"sync"
	"time"
)

// Clock tells the time. An implementation is safe for concurrent use.
type Clock interface {
	// Now returns the wall clock in UTC, without a monotonic reading, so that arithmetic on it is arithmetic on
	// what the wall clock says.
	Now() time.Time
	// Boot returns the time since the machine started, sleep included. It never goes back while the machine runs.
	Boot() time.Duration
}

// System is the clock of the machine.
type System struct{}

// Now returns the machine's wall clock.
func (System) Now() time.Time { return time.Now().UTC().Round(0).Add(step()) }

// Manual is a clock for tests that moves only when told to. It is safe for concurrent use.
type Manual struct {
	mu   sync.Mutex
	wall time.Time
	boot time.Duration
}

// NewManual returns a clock that stands at wall, one hour after the machine started.
func NewManual(wall time.Time) *Manual {
	return &Manual{wall: wall.UTC().Round(0), boot: time.Hour}
}

// Now returns the wall clock as set.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wall
}

// Boot returns the boot clock as advanced.
func (m *Manual) Boot() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot
}

// Advance lets d pass on both clocks, as time does. It panics if d is negative: time that passes does not go back;
// Step does that.
func (m *Manual) Advance(d time.Duration) {
	if d < 0 {
		panic("clock: Advance by a negative duration; use Step to turn the wall clock back")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall = m.wall.Add(d)
	m.boot += d
}

// Step moves the wall clock alone by d, forward or back, as an operator or NTP does.
func (m *Manual) Step(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall = m.wall.Add(d)
}

// Set puts the wall clock alone to t.
func (m *Manual) Set(t time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall = t.UTC().Round(0)
}

// Reboot starts the boot clock anew at d, as a restart of the machine does.
func (m *Manual) Reboot(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boot = d
}
