package state

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// zoneinfo is the IANA time zone database 2025c (public domain), as the Go
// distribution carries it in lib/time/zoneinfo.zip. It is embedded, and the
// machine's own is never asked, so that all processes that share a store agree
// on when a day begins.
//
//go:embed zoneinfo.zip
var zoneinfo []byte

// calendar is the local time of one zone.
type calendar struct {
	read func() (*time.Location, error)
	// What was last worked out for days, weeks and months: in the hot path it
	// is the same period again and again, and the way through a zone's rules is
	// longer than all the rest of a decision.
	days, weeks, months atomic.Pointer[period]
}

// period is a window of time, from start up to end.
type period struct{ start, end int64 }

// calendars has a calendar for each zone by name. Its file is read when it is
// first needed.
var calendars = sync.OnceValue(func() map[string]*calendar {
	archive, err := zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		panic("state: the embedded time zone database is damaged: " + err.Error())
	}
	all := make(map[string]*calendar, len(archive.File))
	for _, f := range archive.File {
		if !f.FileInfo().IsDir() {
			all[f.Name] = &calendar{read: sync.OnceValues(func() (*time.Location, error) { return readZone(f) })}
		}
	}
	return all
})

func readZone(f *zip.File) (*time.Location, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(f.Name, data)
}

// zone finds a zone by its name in the database. "Local", which means something
// else on each machine, is not one.
func zone(name string) (*calendar, *time.Location, error) {
	c, ok := calendars()[name]
	if !ok {
		return nil, nil, errors.New("name a zone of the IANA time zone database, such as Europe/Berlin or UTC")
	}
	loc, err := c.read()
	if err != nil {
		return nil, nil, errors.New("the embedded time zone database is damaged")
	}
	return c, loc, nil
}

// last is where the period of a kind of window is remembered.
func (c *calendar) last(kind WindowKind) *atomic.Pointer[period] {
	switch kind {
	case WindowMonth:
		return &c.months
	case WindowWeek:
		return &c.weeks
	case WindowDay, WindowLifetime, WindowFixed:
	}
	return &c.days
}
