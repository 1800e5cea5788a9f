package clock

import (
	"sync"
	"testing"
	"time"
)

func TestBootIsTheKernelsBootClock(t *testing.T) { //nolint:paralleltest // beside the one below it would see the clock go back
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var last time.Duration
			for range 10_000 {
				now := System{}.Boot()
				if kernel := kernelBoot(); now > kernel {
					t.Errorf("Boot() is %v, and the kernel's clock %v only then", now, kernel)
					return
				}
				if now < last {
					t.Errorf("Boot() went back from %v to %v", last, now)
					return
				}
				last = now
			}
		})
	}
	wg.Wait()
	// A pause of this process between two readings of clocks makes Boot lag until it is next asked: the best of many is taken.
	least := time.Hour
	for range 1000 {
		kernel := kernelBoot()
		least = min(least, kernel-System{}.Boot())
	}
	if least > 10*time.Millisecond {
		t.Errorf("Boot() lies %v behind the kernel's clock", least)
	}
}

func TestBootLearnsOfSleepWhenItAsksAgain(t *testing.T) { //nolint:paralleltest // it turns the clock of the process back
	asked.Store(0)
	// What a sleep of an hour leaves behind: the kernel's clock is ahead of what was known.
	asleep.Add(-int64(time.Hour))
	kernel := kernelBoot()
	if now := (System{}).Boot(); now < kernel-time.Minute {
		t.Errorf("Boot() is %v, and the kernel's clock was %v before", now, kernel)
	}
}
