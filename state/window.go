package state

import (
	"errors"
	"fmt"
	"time"
)

// WindowKind is the sort of a [Window].
type WindowKind uint8

// The sorts of window.
const (
	WindowLifetime WindowKind = 1 // never ends
	WindowFixed    WindowKind = 2 // Seconds long, aligned to the Unix epoch
	WindowDay      WindowKind = 3 // a calendar day in Zone
	WindowWeek     WindowKind = 4 // a calendar week in Zone, from Monday
	WindowMonth    WindowKind = 5 // a calendar month in Zone
)

// Window says after which time a budget's amounts start at 0 again.
type Window struct {
	Kind    WindowKind
	Seconds uint64 // WindowFixed: 1 to MaxWindowSeconds
	Zone    string // calendar windows: a name of the IANA time zone database
}

// MaxWindowSeconds bounds a fixed window: ten years of 366 days.
const MaxWindowSeconds = 10 * 366 * 86_400

// Validate reports what makes w unusable, or nil. Zone names are those of the
// IANA time zone database; "" and "Local", which mean something else on each
// machine, are refused.
func (w Window) Validate() error {
	switch w.Kind {
	case WindowLifetime, WindowFixed:
		if w.Zone != "" {
			return errors.New("only calendar windows have a zone")
		}
		if w.Kind == WindowLifetime && w.Seconds != 0 {
			return errors.New("a lifetime window has no length")
		}
		if w.Kind == WindowFixed && (w.Seconds == 0 || w.Seconds > MaxWindowSeconds) {
			return fmt.Errorf("a fixed window has 1 to %d seconds", MaxWindowSeconds)
		}
		return nil
	case WindowDay, WindowWeek, WindowMonth:
		if w.Seconds != 0 {
			return errors.New("a calendar window has no length in seconds")
		}
		_, _, err := zone(w.Zone)
		return err
	}
	return errors.New("the kind of window is not known")
}

// Bounds gives the start and end of the window that now lies in, in ms; the
// end is 0 if it never ends. Calendar days begin at the first instant of their
// local date, weeks on Monday. No window starts before 0.
func (w Window) Bounds(now int64) (start, end int64, err error) {
	switch w.Kind {
	case WindowLifetime:
		return 0, 0, nil
	case WindowFixed:
		length := int64(w.Seconds) * 1000 //nolint:gosec // Validate bounds it.
		if length == 0 {
			return 0, 0, errors.New("the window has no length")
		}
		start = now - now%length
		return start, start + length, nil
	case WindowDay, WindowWeek, WindowMonth:
	default:
		return 0, 0, errors.New("the kind of window is not known")
	}
	calendar, loc, err := zone(w.Zone)
	if err != nil {
		return 0, 0, err
	}
	last := calendar.last(w.Kind)
	if p := last.Load(); p != nil && p.start <= now && now < p.end {
		return p.start, p.end, nil
	}
	start, end = w.work(loc, now)
	last.Store(&period{start, end})
	return start, end, nil
}

// work works out the bounds of a calendar window.
func (w Window) work(loc *time.Location, now int64) (start, end int64) {
	start, end, next := w.from(time.UnixMilli(now).In(loc))
	if end <= now {
		// Where a clock is set back over midnight, the next date has begun once
		// already: it stays begun.
		start, end = end, next
	}
	return max(start, 0), end
}

// from gives the start of the period that holds the local date of t, of the
// one after it, and of the one after that.
func (w Window) from(t time.Time) (start, next, afterNext int64) {
	loc := t.Location()
	year, month, day := t.Date()
	switch w.Kind {
	case WindowMonth:
		return firstInstant(loc, year, month, 1), firstInstant(loc, year, month+1, 1), firstInstant(loc, year, month+2, 1)
	case WindowWeek:
		day -= (int(t.Weekday()) + 6) % 7
		return firstInstant(loc, year, month, day), firstInstant(loc, year, month, day+7), firstInstant(loc, year, month, day+14)
	default:
		return firstInstant(loc, year, month, day), firstInstant(loc, year, month, day+1), firstInstant(loc, year, month, day+2)
	}
}

// firstInstant is the first moment, in ms, of a local date: midnight where
// there is one (the earlier where there are two), else the end of the gap that
// swallowed it.
func firstInstant(loc *time.Location, year int, month time.Month, day int) int64 {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	_, before := midnight.Add(-36 * time.Hour).In(loc).Zone()
	_, after := midnight.Add(36 * time.Hour).In(loc).Zone()
	first := time.Time{}
	for _, offset := range []int{before, after} {
		t := midnight.Add(-time.Duration(offset) * time.Second).In(loc)
		if _, o := t.Zone(); o == offset && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if first.IsZero() {
		start, _ := midnight.Add(-time.Duration(before) * time.Second).In(loc).ZoneBounds()
		first = start
	}
	return first.UnixMilli()
}
