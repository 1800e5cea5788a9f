package clock

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The boot clock is the monotonic one, which is read without entering the kernel, and the time that the machine has
// slept. That only changes while it sleeps: it is asked for again when it was last asked a moment ago, so that a sleep
// shows within askAgain of waking up.
var (
	started = time.Now()
	asleep  atomic.Int64 // boot clock minus time since started, ns; never more than it is
	asked   atomic.Int64 // when, since started, ns; 0: never
)

const askAgain = time.Millisecond

// Boot returns CLOCK_BOOTTIME; for a millisecond after the machine wakes up it may lack the sleep. It panics where the
// kernel has no such clock (Linux before 2.6.39): without it a stepped wall clock cannot be noticed, and no answer would
// be safe.
func (System) Boot() time.Duration {
	if at := asked.Load(); at == 0 || int64(time.Since(started))-at >= int64(askAgain) {
		ask()
	}
	// In this order: what was added to asleep by others meanwhile is only missing.
	added := asleep.Load()
	return time.Since(started) + time.Duration(added)
}

func ask() {
	boot := kernelBoot()
	since := time.Since(started) // after the kernel: a pause between the two makes asleep less, never more
	for {
		old := asleep.Load()
		if int64(boot-since) <= old || asleep.CompareAndSwap(old, int64(boot-since)) {
			break
		}
	}
	asked.Store(max(int64(since), 1))
}

func kernelBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("clock: CLOCK_BOOTTIME cannot be read: %v; run on a Linux kernel that has it", err))
	}
	return time.Duration(ts.Nano())
}
