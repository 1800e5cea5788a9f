//go:build !linux

package clock

import "time"

var processStart = time.Now()

// Boot returns the monotonic time since the process started. On systems where that clock stands still during sleep, a
// sleep looks like a step of the wall clock: it is refused, never missed.
func (System) Boot() time.Duration { return time.Since(processStart) + 1 }
