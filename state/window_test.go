package state

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// instant reads a time with its offset from UTC, in ms.
func instant(t testing.TB, s string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMilli()
}

func TestWindowBounds(t *testing.T) {
	t.Parallel()
	const hour = 3600
	day := func(zone string) Window { return Window{Kind: WindowDay, Zone: zone} }
	week := func(zone string) Window { return Window{Kind: WindowWeek, Zone: zone} }
	month := func(zone string) Window { return Window{Kind: WindowMonth, Zone: zone} }
	for _, c := range []struct {
		name            string
		window          Window
		now, start, end string
	}{
		{"fixed hour, at its first instant", Window{Kind: WindowFixed, Seconds: hour}, "2026-03-01T10:00:00Z", "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"},
		{"fixed hour, at its last instant", Window{Kind: WindowFixed, Seconds: hour}, "2026-03-01T10:59:59.999Z", "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"},
		{"fixed week is aligned to the Unix epoch, a Thursday", Window{Kind: WindowFixed, Seconds: 7 * 24 * hour}, "2026-03-01T00:00:00Z", "2026-02-26T00:00:00Z", "2026-03-05T00:00:00Z"},
		{"day in UTC", day("UTC"), "2026-03-01T23:59:59.999Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"},
		{"day of 23 hours, clocks go forward", day("Europe/Berlin"), "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{"day of 25 hours, clocks go back", day("Europe/Berlin"), "2026-10-25T12:00:00+01:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		{"week begins on Monday", week("Europe/Berlin"), "2026-03-01T23:00:00+01:00", "2026-02-23T00:00:00+01:00", "2026-03-02T00:00:00+01:00"},
		{"week on its Monday", week("Europe/Berlin"), "2026-03-02T00:00:00+01:00", "2026-03-02T00:00:00+01:00", "2026-03-09T00:00:00+01:00"},
		{"month over the change of clocks", month("America/New_York"), "2026-03-15T00:00:00-04:00", "2026-03-01T00:00:00-05:00", "2026-04-01T00:00:00-04:00"},
		{"December rolls into January", month("Asia/Tokyo"), "2026-12-31T23:59:59+09:00", "2026-12-01T00:00:00+09:00", "2027-01-01T00:00:00+09:00"},
		{"February of a leap year", month("UTC"), "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		// In Beirut clocks go forward at midnight: the day begins at 01:00.
		{"gap over midnight, before it", day("Asia/Beirut"), "2026-03-28T23:59:59+02:00", "2026-03-28T00:00:00+02:00", "2026-03-29T01:00:00+03:00"},
		{"gap over midnight, at its end", day("Asia/Beirut"), "2026-03-29T01:00:00+03:00", "2026-03-29T01:00:00+03:00", "2026-03-30T00:00:00+03:00"},
		// In Havana clocks go back from 01:00 to 00:00: midnight comes twice, the day begins at the first.
		{"repeated midnight, the first", day("America/Havana"), "2026-11-01T00:30:00-04:00", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00"},
		{"repeated midnight, the second", day("America/Havana"), "2026-11-01T00:30:00-05:00", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00"},
		// In St. John's clocks went back at 00:01 to 23:01 of the day before, until 2011: a begun day stays begun.
		{"begun day, before the clocks go back over midnight", day("America/St_Johns"), "2010-11-07T00:00:30-02:30", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"},
		{"begun day, when the old date comes again", day("America/St_Johns"), "2010-11-06T23:30:00-03:30", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"},
		{"begun day, after midnight came again", day("America/St_Johns"), "2010-11-07T00:30:00-03:30", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"},
		{"begun month stays begun", month("America/St_Johns"), "2010-11-06T23:30:00-03:30", "2010-11-01T00:00:00-02:30", "2010-12-01T00:00:00-03:30"},
		// Samoa left out 30 December 2011.
		{"day before the one left out", day("Pacific/Apia"), "2011-12-29T23:00:00-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"day after the one left out", day("Pacific/Apia"), "2011-12-31T00:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		{"week with a day left out", week("Pacific/Apia"), "2011-12-31T12:00:00+14:00", "2011-12-26T00:00:00-10:00", "2012-01-02T00:00:00+14:00"},
		// Kwajalein left out 21 August 1993.
		{"Kwajalein's day left out", day("Pacific/Kwajalein"), "1993-08-20T12:00:00-12:00", "1993-08-20T00:00:00-12:00", "1993-08-22T00:00:00+12:00"},
		// Lord Howe Island moves by half an hour.
		{"half an hour forward", day("Australia/Lord_Howe"), "2026-10-04T12:00:00+11:00", "2026-10-04T00:00:00+10:30", "2026-10-05T00:00:00+11:00"},
		{"no window starts before the epoch", week("UTC"), "1970-01-02T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-05T00:00:00Z"},
		{"nor where it is still 1969", month("America/New_York"), "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-01T05:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := c.window.Validate(); err != nil {
				t.Fatal(err)
			}
			start, end, err := c.window.Bounds(instant(t, c.now))
			if err != nil {
				t.Fatal(err)
			}
			if start != instant(t, c.start) || end != instant(t, c.end) {
				t.Errorf("from %s to %s, want %s to %s", time.UnixMilli(start).UTC(), time.UnixMilli(end).UTC(), c.start, c.end)
			}
		})
	}
}

func TestLifetimeWindowNeverEnds(t *testing.T) {
	t.Parallel()
	for _, now := range []int64{0, 1, MaxAmount} {
		if start, end, err := (Window{Kind: WindowLifetime}).Bounds(now); start != 0 || end != 0 || err != nil {
			t.Errorf("at %d: %d, %d, %v", now, start, end, err)
		}
	}
}

func TestWindowsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]Window{
		"no kind":                    {},
		"unknown kind":               {Kind: 6},
		"lifetime with a length":     {Kind: WindowLifetime, Seconds: 1},
		"lifetime with a zone":       {Kind: WindowLifetime, Zone: "UTC"},
		"fixed without a length":     {Kind: WindowFixed},
		"fixed and too long":         {Kind: WindowFixed, Seconds: MaxWindowSeconds + 1},
		"fixed with a zone":          {Kind: WindowFixed, Seconds: 1, Zone: "UTC"},
		"day with a length":          {Kind: WindowDay, Seconds: 86_400, Zone: "UTC"},
		"day without a zone":         {Kind: WindowDay},
		"the machine's zone":         {Kind: WindowDay, Zone: "Local"},
		"a zone that does not exist": {Kind: WindowWeek, Zone: "Europe/Atlantis"},
		"a folder of zones":          {Kind: WindowWeek, Zone: "Europe"},
		"a path":                     {Kind: WindowMonth, Zone: "../UTC"},
		"another letter case":        {Kind: WindowMonth, Zone: "europe/berlin"},
	} {
		if w.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, _, err := w.Bounds(1); err == nil && w.Kind > WindowFixed && w.Seconds == 0 {
			t.Errorf("%s: has bounds", name)
		}
	}
}

// periodOf names the period that a local time lies in, by its date alone.
func periodOf(w Window, at time.Time) string {
	switch w.Kind {
	case WindowDay:
		return at.Format("2006-01-02")
	case WindowWeek:
		return at.AddDate(0, 0, -(int(at.Weekday())+6)%7).Format("2006-01-02")
	case WindowLifetime, WindowFixed, WindowMonth:
	}
	return at.Format("2006-01")
}

// TestCalendarWindowsAgreeWithACalendar walks through the years of zones with
// odd rules minute by minute, and keeps the latest period that has begun.
func TestCalendarWindowsAgreeWithACalendar(t *testing.T) {
	t.Parallel()
	zones := []struct{ name, from, to string }{
		{"Pacific/Apia", "2011-11-15", "2012-02-02"}, {"Pacific/Kiritimati", "1994-12-15", "1995-02-02"}, {"Pacific/Kwajalein", "1993-08-01", "1993-10-02"},
		{"America/St_Johns", "2010-10-15", "2010-12-02"}, {"America/St_Johns", "2011-02-15", "2011-04-02"}, {"America/Havana", "2026-10-15", "2026-12-02"},
		{"Asia/Beirut", "2026-03-15", "2026-05-02"}, {"America/Asuncion", "2023-09-15", "2023-11-02"}, {"Asia/Amman", "2021-10-15", "2021-12-02"},
		{"Africa/Cairo", "2014-04-15", "2014-11-02"}, {"Africa/Casablanca", "2026-02-01", "2026-04-02"}, {"Antarctica/Troll", "2026-10-01", "2026-12-02"},
		{"Australia/Lord_Howe", "2026-09-15", "2026-11-02"}, {"Asia/Kathmandu", "1985-12-15", "1986-02-02"},
	}
	for _, z := range zones {
		t.Run(z.name+" "+z.from, func(t *testing.T) {
			t.Parallel()
			_, loc, err := zone(z.name)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range []Window{{Kind: WindowDay, Zone: z.name}, {Kind: WindowWeek, Zone: z.name}, {Kind: WindowMonth, Zone: z.name}} {
				walkCalendar(t, w, loc, instant(t, z.from+"T00:00:00Z"), instant(t, z.to+"T00:00:00Z"))
			}
		})
	}
}

func walkCalendar(t *testing.T, w Window, loc *time.Location, now, last int64) {
	t.Helper()
	const minute = 60_000
	period, began, ends := "", int64(-1), int64(0)
	for ; now < last; now += minute {
		if p := periodOf(w, time.UnixMilli(now).In(loc)); p > period {
			if ends != 0 && ends != now {
				t.Fatalf("%v: %s ended at %s, announced was %s", w, period, time.UnixMilli(now).In(loc), time.UnixMilli(ends).In(loc))
			}
			if period != "" {
				began = now
			}
			period = p
		}
		if began < 0 {
			continue
		}
		start, end, err := w.Bounds(now)
		if s, e := w.work(loc, now); s != start || e != end {
			t.Fatalf("%v at %s: worked out it is from %d to %d, remembered %d to %d", w, time.UnixMilli(now).In(loc), s, e, start, end)
		}
		if err != nil || start != began || end <= now {
			t.Fatalf("%v at %s: from %s to %s, %v, want from %s", w, time.UnixMilli(now).In(loc), time.UnixMilli(start).In(loc), time.UnixMilli(end).In(loc), err, time.UnixMilli(began).In(loc))
		}
		ends = end
	}
}

// TestWindowsNeverGoBack: at a later moment the window starts no earlier, it
// holds the moment, and the next one begins where it ends.
func TestWindowsNeverGoBack(t *testing.T) {
	t.Parallel()
	names := []string{}
	for name := range calendars() {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(t *rapid.T) {
		w := Window{Kind: rapid.SampledFrom([]WindowKind{WindowDay, WindowWeek, WindowMonth}).Draw(t, "kind"), Zone: rapid.SampledFrom(names).Draw(t, "zone")}
		now := rapid.Int64Range(0, 4_000_000_000_000).Draw(t, "now")
		_, loc, err := zone(w.Zone)
		if err != nil {
			t.Fatal(err)
		}
		start, end := w.work(loc, now)
		if s, e, err := w.Bounds(now); err != nil || s != start || e != end || start > now || end <= now {
			t.Fatalf("at %d: from %d to %d, remembered %d to %d, %v", now, start, end, s, e, err)
		}
		for _, at := range []int64{start, end - 1, start + rapid.Int64Range(0, end-start-1).Draw(t, "within")} {
			if s, e := w.work(loc, at); s != start || e != end {
				t.Fatalf("at %d the window is %d to %d, at %d %d to %d", now, start, end, at, s, e)
			}
		}
		if s, _ := w.work(loc, end); s != end {
			t.Fatalf("the window after %d to %d begins at %d", start, end, s)
		}
		if length := end - start; start > 0 && length < 22*3600_000 || length > 32*86_400_000 {
			t.Fatalf("a window of %d ms", length)
		}
	})
}

func TestZonesComeFromTheEmbeddedDatabase(t *testing.T) {
	t.Setenv("ZONEINFO", t.TempDir())
	for name := range calendars() {
		if _, _, err := zone(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.EqualFold(name, "local") {
			t.Errorf("the database has a zone %s", name)
		}
	}
}
