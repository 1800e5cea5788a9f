package clock

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Boot returns CLOCK_BOOTTIME. It panics where the kernel has no such clock (Linux before 2.6.39): without it a stepped
// wall clock cannot be noticed, and no answer would be safe.
func (System) Boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("clock: CLOCK_BOOTTIME cannot be read: %v; run on a Linux kernel that has it", err))
	}
	return time.Duration(ts.Nano())
}
