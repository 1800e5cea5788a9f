package store

import (
	"errors"
	"log/slog"
	"time"

	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/state"
)

// Bounds of a store that no option moves.
const (
	groupBatches = 1024             // batches of one group
	groupBytes   = 8 << 20          // estimated memory of one group
	queueBatches = 32 << 10         // batches waiting, all scopes together
	queueBytes   = 256 << 20        // estimated memory of those
	idleWorkers  = 8                // that stay when there is nothing to do
	groupsAtOnce = 64               // groups under way, all scopes together
	notAfterMS   = 2_000            // from a decision to its commit
	batchLifeMS  = 60_000           // NotAfter of a batch that names none
	writerLease  = 60_000           // ms, renewed by every commit
	settleFor    = 20 * time.Second // how long an ambiguous commit is settled before it is unknown
	commitFor    = 30 * time.Second // bound on one transaction
	leaveFor     = 2 * time.Second  // how long closing gives slots back
	sweepBatch   = 48               // records of one sweep batch: with their quotas they stay below the key limit
	rewriteBatch = 256              // records of one step of an operator's walk
	sweepPerKind = 4096             // records of one kind and scope in one pass
	downtimeMS   = 3_600_000        // a longer gap before open is reported
	sweepDelay   = 10 * time.Minute // the first sweep after such a gap waits
)

// Options configure a [Store].
type Options struct {
	// Keys seal and open records. Required.
	Keys *state.Keys
	// Clock is compared with the engine's own clock. Default: the machine's.
	Clock clock.Clock
	// Entropy draws versions. Default: the machine's.
	Entropy entropy.Source
	// Witness is the path of the witness file; "" for none. An embedded engine
	// that keeps its data should have one.
	Witness string
	// Log gets what an operator should know. Default: nowhere.
	Log *slog.Logger
	// SweepEvery is the time between passes of the background sweeper; 0 means
	// none runs, and [Store.Sweep] must be called.
	SweepEvery time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Keys == nil {
		return o, errors.New("store: integrity keys are missing")
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Entropy == nil {
		o.Entropy = entropy.System
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
