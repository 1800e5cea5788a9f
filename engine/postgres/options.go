package postgres

import (
	"cmp"
	"errors"
	"fmt"
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
	// ReadTimeout bounds a read, and the wait for a free connection; 10 s by
	// default.
	ReadTimeout time.Duration
	// CommitTimeout bounds a commit, the wait for standbys included, after which
	// its outcome is unknown; 20 s by default.
	CommitTimeout time.Duration
}

const (
	defaultConnections   = 16
	maxConnections       = 1000
	dialFor              = 5 * time.Second
	defaultReadTimeout   = 10 * time.Second
	defaultCommitTimeout = 20 * time.Second
	lockFor              = "5s" // bound on a wait for a lock
	maxAttempts          = 64   // conflicts after which a transaction gives up
	turnAfter            = 1    // conflicts after which it waits for its turn
)

func (o Options) withDefaults() (Options, error) {
	if o.Connections < 0 || o.Connections > maxConnections {
		return o, fmt.Errorf("postgres: the number of connections must be 1 to %d", maxConnections)
	}
	if o.ReadTimeout < 0 || o.CommitTimeout < 0 {
		return o, errors.New("postgres: a timeout is negative")
	}
	o.Connections = cmp.Or(o.Connections, defaultConnections)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, defaultReadTimeout)
	o.CommitTimeout = cmp.Or(o.CommitTimeout, defaultCommitTimeout)
	return o, nil
}

// now is the injected clock's time, 0 without one.
func (o Options) now() int64 {
	if o.Clock == nil {
		return 0
	}
	return o.Clock.Now().UnixMilli()
}
