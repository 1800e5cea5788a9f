// Package engine is the contract between the store and what keeps its bytes.
//
// An engine knows no rule of Counterfoil. It keeps sealed records by key, can
// read a set of them in one snapshot, and applies changes all or none if and
// only if nothing that was read has changed. Everything else is decided above
// it. The suite in engine/enginetest says what each method must do; a new
// engine is one package that passes it.
package engine

import (
	"context"
	"errors"

	"github.com/counterfoil/counterfoil/state"
)

// Snapshot is what an engine read: Items[i] belongs to the i-th key, nil if no
// record has it. Items must not be changed.
type Snapshot struct {
	// Now is the engine's own clock at the read, Unix milliseconds.
	Now   int64
	Keys  []state.Key
	Items []*state.Sealed
	// Lineage is of the data that the items were read from. Changes are applied
	// to data of the same lineage only, else it is a conflict.
	Lineage Lineage
	// Foretold: nothing was read; this is what the engine expects to find.
	Foretold bool
}

// Lineage identifies one history of an engine's data. It changes when another
// copy of the data takes the place of the one before, which may lack the last
// changes, and with every restart of a server. It is zero on engines that have
// one copy or whose copies never differ in what was acknowledged.
type Lineage struct {
	// ID is of the present history.
	ID string
	// Previous is of the history that the present one went on from, if this
	// copy was a replica before: "" if it was not, or it is not known.
	Previous string
}

// Change is one record to write: a nil Item deletes.
type Change struct {
	Key  state.Key
	Item *state.Sealed
}

// Plan is what to do with a snapshot.
type Plan struct {
	// More names keys that must be read too. If it is not empty, nothing is
	// applied: the engine reads them as well, in one new snapshot with all
	// earlier ones, and calls the function again.
	More []state.Key
	// Changes to apply, each to a key that was read, no key twice. None:
	// nothing is written, but see [Engine.Transact].
	Changes []Change
	// NotAfter is the engine's time after which the changes must not be
	// applied, Unix milliseconds.
	NotAfter int64
}

// Func turns a snapshot into a plan. It may be called several times, each time
// with versions of its own in what it writes, must not keep the snapshot and must
// not use the engine. An engine may show it first what it expects to read,
// also what another transaction, still under way, is to write: changes are then
// applied only if everything is as foretold, and an error of the function, or a
// plan without changes, only counts for what was read. So the last call is the
// one that counts. An error then stops the transaction with nothing written.
type Func func(Snapshot) (Plan, error)

// Engine keeps sealed records. All methods may be called concurrently.
type Engine interface {
	// Transact reads keys in one snapshot, calls fn and applies its changes all
	// or none, if and only if every key that was read, present or absent,
	// written or not, still has the version that was read (or is still absent)
	// and the engine's clock is not past NotAfter. On a conflict it starts again
	// with a new snapshot, a bounded number of times. All keys are of one scope.
	//
	// A nil error means: the changes are durable as [Guarantee] says, and so is
	// everything that the snapshot showed, also if there were no changes.
	// ErrConflict and ErrUnavailable mean that nothing was written;
	// ErrAmbiguous means that it is not known. Any error of fn is returned as
	// it is. Once the changes are on their way, the end of ctx no longer stops
	// them.
	Transact(ctx context.Context, keys []state.Key, fn Func) error

	// Read gives the records of keys in one snapshot, without waiting for the
	// durability of what it shows: no positive answer may rest on it.
	Read(ctx context.Context, keys []state.Key) (Snapshot, error)

	// Due lists keys of one kind whose index time is above 0 and at or before
	// the given time, oldest first, at most limit of them, from cursor on (""
	// for the start). The next cursor is "" when there are no more. It shows
	// what was indexed at some moment during the call; the caller checks each
	// record again.
	Due(ctx context.Context, scope string, index Index, kind state.Kind, before int64, cursor string, limit int) ([]DueKey, string, error)

	// Scan lists records of one kind whose ID begins with prefix, in byte order
	// of the ID, at most limit of them, from cursor on ("" for the start). The
	// next cursor is "" when there are no more.
	Scan(ctx context.Context, scope string, kind state.Kind, prefix, cursor string, limit int) ([]Found, string, error)

	// Scopes lists the scopes that have a scope record, in byte order, the
	// store's own included.
	Scopes(ctx context.Context, cursor string, limit int) ([]string, string, error)

	// Now reads the engine's clock, Unix milliseconds.
	Now(ctx context.Context) (int64, error)

	// Guarantee says what a durable answer survives.
	Guarantee() Guarantee

	// Close releases what the engine holds. Calls under way end with
	// ErrUnavailable or their result.
	Close() error
}

// Index selects one of an engine's two time indexes.
type Index uint8

// The indexes: by state.Sealed.Expiry and by state.Sealed.Lease. A record whose
// time is 0 is not in the index.
const (
	ByExpiry Index = 1
	ByLease  Index = 2
)

// DueKey is one entry of a time index.
type DueKey struct {
	Key state.Key
	At  int64
}

// Found is one record of a scan.
type Found struct {
	Key  state.Key
	Item *state.Sealed
}

// Level says what survives.
type Level string

// The levels of durability.
const (
	Process    Level = "process"    // nothing survives the process
	Node       Level = "node"       // a crash and power loss of the one machine
	Replicated Level = "replicated" // the loss of one machine
)

// Guarantee describes an engine as health, logs and metrics show it.
type Guarantee struct {
	Engine string // memory, pebble, redis, postgres
	Level  Level
	// Unsafe lists settings that are weaker than Level needs and were accepted
	// explicitly.
	Unsafe []string
	// Shared reports that other processes may use the same data at the same
	// time; an embedded engine belongs to one process.
	Shared bool
	// Pipeline is how many transactions of one scope may usefully be under way
	// at once from one process: more than 1 where a next one can be decided
	// while an earlier one waits for the disk or the network.
	Pipeline int
}

// Errors of the methods above. They are matched with errors.Is.
var (
	// ErrConflict: other writers changed what was read, more often than the
	// retry limit. Nothing was written.
	ErrConflict = errors.New("too many concurrent changes")
	// ErrUnavailable: the engine cannot be reached or refused. Nothing was written.
	ErrUnavailable = errors.New("the engine is unavailable")
	// ErrAmbiguous: the commit failed or its reply was lost; it may have been applied.
	ErrAmbiguous = errors.New("the commit may or may not have been applied")
	// ErrBroken: an embedded engine failed in a way that only reopening it can
	// clear. A Transact that returns it may or may not have been applied.
	ErrBroken = errors.New("the engine is broken and must be reopened")
	// ErrLate: the engine's clock was past NotAfter. Nothing was written.
	ErrLate = errors.New("the engine's clock is past the time limit of the commit")
	// ErrNoStore: there is no store at the place named.
	ErrNoStore = errors.New("there is no store")
	// ErrStoreExists: there is a store already where one should be created.
	ErrStoreExists = errors.New("there is a store already")
	// ErrForeign: what is there is not a store, or one of another format.
	ErrForeign = errors.New("not a store of this format")
	// ErrLocked: another process has the store open.
	ErrLocked = errors.New("the store is in use")
	// ErrClosed: the engine was closed.
	ErrClosed = errors.New("the engine is closed")
)

// Checkpointer is an embedded engine that can copy itself while it runs.
type Checkpointer interface {
	// Checkpoint writes a consistent copy of everything durable into dir, which
	// must not exist.
	Checkpoint(ctx context.Context, dir string) error
}
