package operation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// Defaults of [Options].
const (
	DefaultRetention  = 24 * time.Hour
	DefaultTombstone  = 30 * 24 * time.Hour
	DefaultMaxReceipt = 1 << 20 // bytes
)

// maxKept bounds retention and tombstones.
const maxKept = 10 * 365 * 24 * time.Hour

// Options are policy: they may differ from start to start, and no request becomes another one by it.
type Options struct {
	// Retention is how long a receipt is replayed after its operation was completed. Default: 24 h.
	Retention time.Duration
	// Tombstone is how long after that the key stays refused. Default: 30 days.
	Tombstone time.Duration
	// NoTombstones lets a key be used anew as soon as its receipt's retention is over.
	NoTombstones bool
	// MaxReceipt is the largest receipt that is kept, in bytes of its body and headers; of a larger one only digest and
	// length are. Default: 1 MiB.
	MaxReceipt int
	// Log gets what an operator should know. Default: nowhere.
	Log *slog.Logger
}

// Operations is the capability. It is safe for concurrent use.
type Operations struct {
	store     *store.Store
	retention int64 // ms
	tombstone int64 // ms, 0: none
	maxSize   int
	log       *slog.Logger
	late      atomic.Uint64
}

// New makes the capability on a store. It fails with [ErrInvalid] if an option is out of range.
func New(s *store.Store, o Options) (*Operations, error) {
	if o.Retention == 0 {
		o.Retention = DefaultRetention
	}
	switch {
	case o.NoTombstones && o.Tombstone != 0:
		return nil, invalidf("tombstones are both switched off and given a time")
	case o.NoTombstones:
	case o.Tombstone == 0:
		o.Tombstone = DefaultTombstone
	}
	if o.MaxReceipt == 0 {
		o.MaxReceipt = DefaultMaxReceipt
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Retention < time.Second || o.Retention > maxKept:
		return nil, invalidf("receipts are retained for 1 s to 10 years")
	case !o.NoTombstones && o.Tombstone < time.Second || o.Tombstone > maxKept:
		return nil, invalidf("tombstones are kept for 1 s to 10 years, or not at all")
	case o.MaxReceipt < 0 || o.MaxReceipt > MaxReceiptLimit:
		return nil, invalidf("the size limit of receipts is at most %d bytes", MaxReceiptLimit)
	}
	return &Operations{
		store: s, retention: o.Retention.Milliseconds(), tombstone: o.Tombstone.Milliseconds(), maxSize: o.MaxReceipt, log: o.Log,
	}, nil
}

// Stats counts what an operator should know of since the start.
type Stats struct {
	// LateCompletions counts receipts that came from one that no longer held its operation: it may have happened although
	// it was resolved as not having happened.
	LateCompletions uint64
}

// Stats gives the counts.
func (o *Operations) Stats() Stats { return Stats{LateCompletions: o.late.Load()} }

// keep gives the times until which a receipt is replayed and its key is taken. Retention starts when the operation is
// finished.
func (o *Operations) keep(now int64) (retain, expires int64) {
	if o.tombstone == 0 {
		return 0, now + o.retention
	}
	return now + o.retention, now + o.retention + o.tombstone
}

// token is the caller's, or a fresh one.
func (o *Operations) token(given state.Token) (state.Token, error) {
	if !given.IsZero() {
		return given, nil
	}
	return o.store.Token()
}

// do runs a batch that starts with a part of this package.
func (o *Operations) do(ctx context.Context, scope string, ops []state.Op) (state.Outcome, error) {
	out, err := o.store.Do(ctx, &state.Batch{Scope: scope, Ops: ops})
	if err != nil {
		return out, fmt.Errorf("operation: %w", err)
	}
	return out, nil
}

// refusalError gives the error of a holder's or operator's step that was refused for a reason.
func refusalError(r state.Refusal, now int64) error {
	switch r.Reason {
	case state.Absent:
		return ErrNotFound
	case state.NotHolder:
		if r.Record.Tomb {
			return ErrKeyExpired
		}
		return ErrNotHolder
	case state.NotPending:
		if r.Record.State == state.Void {
			return ErrAborted
		}
		return ErrNotPending
	case state.LeaseOver:
		return ErrOutcomeUnknown
	case state.LeaseAlive:
		return inFlight(r.Record, now)
	}
	return shared(r.Reason)
}

// shared gives the error of a reason that means the same in every capability.
func shared(reason state.Reason) error {
	if err := state.RefusalError(reason); err != nil {
		return fmt.Errorf("operation: %w", err)
	}
	return fmt.Errorf("operation: refused: %s: %w", reason, errors.ErrUnsupported)
}

func inFlight(r *state.Record, now int64) error {
	return &InFlightError{LeaseUntil: at(r.Lease), RetryAfter: time.Duration(r.Lease-now) * time.Millisecond}
}

// at gives a time in ms as an API shows it, the zero time for none.
func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
