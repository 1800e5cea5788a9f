package postgres

import (
	"time"

	"github.com/counterfoil/counterfoil/internal/clock"
)

// Options of an engine. The zero value of each is a good default.
type Options struct {
	// Clock replaces the server's clock, for tests alone.
	Clock clock.Clock
	// Replicated asks that every answer also be on the synchronous standbys that
	// the server names.
	Replicated bool
	// UnsafeDurability accepts settings that are weaker than the guarantee; they
	// are listed in it.
	UnsafeDurability bool
	// Connections is how many are opened at most; 16 by default.
	Connections int
}

const (
	defaultConnections = 16
	dialFor            = 5 * time.Second
	readFor            = 10 * time.Second // bound on a read
	commitFor          = 20 * time.Second // bound on a commit, waits for standbys included
	lockFor            = "5s"             // bound on a wait for a lock
	maxAttempts        = 64               // conflicts after which a transaction gives up
	turnAfter          = 3                // conflicts after which it waits for its turn
)

func (o Options) withDefaults() Options {
	if o.Connections == 0 {
		o.Connections = defaultConnections
	}
	return o
}

// now is the injected clock's time, 0 without one.
func (o Options) now() int64 {
	if o.Clock == nil {
		return 0
	}
	return o.Clock.Now().UnixMilli()
}
