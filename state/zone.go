package state

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"errors"
	"io"
	"sync"
	"time"
)

// zoneinfo is the IANA time zone database 2025c (public domain), as the Go
// distribution carries it in lib/time/zoneinfo.zip. It is embedded, and the
// machine's own is never asked, so that all processes that share a store agree
// on when a day begins.
//
//go:embed zoneinfo.zip
var zoneinfo []byte

var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	archive, err := zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		panic("state: the embedded time zone database is damaged: " + err.Error())
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, f := range archive.File {
		if !f.FileInfo().IsDir() {
			files[f.Name] = f
		}
	}
	return files
})

// zones keeps zones that were read once: reading one takes longer than a whole
// decision. There are no more of them than the database has names.
var zones sync.Map // name → *time.Location

// zone finds a zone by its name in the database. "Local", which means something
// else on each machine, is not one.
func zone(name string) (*time.Location, error) {
	if loc, ok := zones.Load(name); ok {
		return loc.(*time.Location), nil //nolint:forcetypeassert // only locations are stored.
	}
	file, ok := zoneFiles()[name]
	if !ok {
		return nil, errors.New("name a zone of the IANA time zone database, such as Europe/Berlin or UTC")
	}
	r, err := file.Open()
	if err != nil {
		return nil, errors.New("the embedded time zone database is damaged")
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, errors.New("the embedded time zone database is damaged")
	}
	loc, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, errors.New("the embedded time zone database is damaged")
	}
	zones.Store(name, loc)
	return loc, nil
}
