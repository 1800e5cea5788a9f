package pebble

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"

	"github.com/counterfoil/counterfoil/internal/planted"
)

// databaseLog is the database's logger. The database calls Fatalf where it
// cannot go on and takes a Fatalf that returns for permission to do so: a
// failed write would then be reported as done. So it never returns.
type databaseLog struct {
	log   *slog.Logger
	latch *latch
}

// Infof goes to the log as detail.
func (d databaseLog) Infof(format string, args ...any) { d.print(slog.LevelDebug, format, args) }

// Errorf goes to the log as an error.
func (d databaseLog) Errorf(format string, args ...any) { d.print(slog.LevelError, format, args) }

func (d databaseLog) print(level slog.Level, format string, args []any) {
	if d.log.Enabled(context.Background(), level) {
		d.log.Log(context.Background(), level, "database", "message", fmt.Sprintf(format, args...))
	}
}

// Fatalf latches the engine and never returns.
func (d databaseLog) Fatalf(format string, args ...any) {
	if planted.On(planted.FatalThatReturns) {
		return
	}
	d.latch.failForEver(fmt.Errorf(format, args...)) //nolint:err113 // the database's own words
}

// listener latches on errors in the background, of which the database would
// otherwise try the same again for ever. Damaged blocks are logged alone: each
// key that lies in one answers so by itself.
func listener(log *slog.Logger, l *latch) *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) { l.fail(fmt.Errorf("in the background: %w", err)) },
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			log.Error("a block of the store is damaged", "file", info.Path, "error", info.Details)
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			log.Warn("commits wait for the disk", "reason", info.Reason)
		},
		WriteStallEnd: func() { log.Warn("commits no longer wait for the disk") },
	}
}
