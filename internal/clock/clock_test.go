package clock_test

import (
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/internal/clock"
)

func TestSystemNowIsTheWallClockWithoutMonotonicReading(t *testing.T) {
	t.Parallel()
	before := time.Now().Round(0)
	now := clock.System{}.Now()
	after := time.Now().Round(0)
	if now.Before(before) || now.After(after) {
		t.Fatalf("Now() = %v, want between %v and %v", now, before, after)
	}
	if now != now.Round(0) {
		t.Fatal("Now() carries a monotonic reading: differences would hide a step of the wall clock")
	}
	if now.Location() != time.UTC {
		t.Fatalf("Now() is in %v, want UTC", now.Location())
	}
}

func TestSystemBootNeverGoesBack(t *testing.T) {
	t.Parallel()
	last := clock.System{}.Boot()
	if last <= 0 {
		t.Fatalf("Boot() = %v, want above zero", last)
	}
	for range 1000 {
		now := clock.System{}.Boot()
		if now < last {
			t.Fatalf("Boot() went back from %v to %v", last, now)
		}
		last = now
	}
}

func TestManualMovesOnlyAsTold(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	m := clock.NewManual(start)
	boot := m.Boot()
	steps := []struct {
		name string
		move func()
		wall time.Time
		boot time.Duration
	}{
		{"stands still", func() {}, start, boot},
		{"Advance moves both", func() { m.Advance(time.Minute) }, start.Add(time.Minute), boot + time.Minute},
		{"Step back moves the wall alone", func() { m.Step(-time.Hour) }, start.Add(-59 * time.Minute), boot + time.Minute},
		{"Set moves the wall alone", func() { m.Set(start) }, start, boot + time.Minute},
		{"Reboot moves the boot clock alone", func() { m.Reboot(time.Second) }, start, time.Second},
	}
	for _, s := range steps {
		s.move()
		if !m.Now().Equal(s.wall) || m.Boot() != s.boot {
			t.Fatalf("%s: at %v, %v; want %v, %v", s.name, m.Now(), m.Boot(), s.wall, s.boot)
		}
	}
}

func TestManualDoesNotAdvanceByANegativeDuration(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Fatal("Advance(-1) did not panic")
		}
	}()
	clock.NewManual(time.Unix(0, 0)).Advance(-1)
}
