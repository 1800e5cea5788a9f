package pebble

import "context"

// Stats are figures for metrics.
type Stats struct {
	DiskBytes    int64 // files of the database
	LogBytes     int64 // of them, write-ahead log
	LogWritten   int64 // into the log since the engine was opened
	FilterKeys   int64 // keys that the filter knows
	FilterBytes  int64
	FilterMaybe  float64 // the part of the keys, 0 to 1, whose absence it cannot tell
	ReadAmp      int     // tables that a look-up may have to search
	CacheHits    int64
	CacheMisses  int64
	DiskFree     int64 // bytes left on the file system
	CompactBytes int64 // waiting to be compacted
}

// Stats reads the figures; it costs about a millisecond.
func (e *Engine) Stats(ctx context.Context) (Stats, error) {
	if err := e.latch.enter(ctx); err != nil {
		return Stats{}, err
	}
	defer e.leave()
	m := e.db.Metrics()
	s := Stats{
		DiskBytes:    int64(m.DiskSpaceUsage()), //nolint:gosec // far below
		LogBytes:     int64(m.WAL.PhysicalSize), //nolint:gosec // far below
		LogWritten:   int64(m.WAL.BytesWritten), //nolint:gosec // far below
		ReadAmp:      m.ReadAmp(),
		CacheHits:    m.BlockCache.Hits,
		CacheMisses:  m.BlockCache.Misses,
		CompactBytes: int64(m.Compact.EstimatedDebt), //nolint:gosec // far below
	}
	var maybe int
	s.FilterKeys, s.FilterBytes, maybe = e.filter.size()
	s.FilterMaybe = float64(maybe) / filterShards
	if e.filter.filling.Load() {
		s.FilterMaybe = 1
	}
	if usage, err := e.place.fs.GetDiskUsage(e.place.root); err == nil {
		s.DiskFree = int64(usage.AvailBytes) //nolint:gosec // far below
	}
	return s, nil
}
