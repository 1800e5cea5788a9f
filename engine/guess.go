package engine

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/counterfoil/counterfoil/state"
)

// Limits of a [Guess].
const (
	guessRecords = 8192        // of each of two halves
	guessBytes   = 2048        // of a record's sealed data; larger ones are not remembered
	guessAge     = time.Second // of the clock that is gone on from
	guessPause   = 64          // transactions, at most, that are not guessed after a wrong one
)

// Guess foretells what a transaction will read from what this process read and
// wrote before, so that an engine over a network can do without asking first, and
// can decide a next transaction while one is still under way. It is for speed
// alone: what is decided on a guess is applied only if the engine finds
// everything as guessed, in the same step in which it would compare what it had
// read; a function's error on a guess, or a plan without changes, says nothing.
// It is safe for concurrent use.
type Guess struct {
	lanes [guessLanes]lane
	seed  maphash.Seed

	mu         sync.Mutex
	young, old map[state.Key]*state.Sealed // nil: known to be absent
	now        int64                       // the engine's clock, ms
	at         time.Duration               // this machine's boot clock then
	lineage    Lineage
	wrong      int // guesses in a row
	pause      int // transactions that are not to be guessed
}

// lane is where the transactions of a scope pass.
type lane struct {
	deciding sync.Mutex          // one after another, each on what the one before is to write
	passing  *semaphore.Weighted // many that are guessed, or one alone
}

const (
	guessLanes = 256     // some scopes share one
	laneWidth  = 1 << 20 // more than will ever be under way
	laneWait   = 100 * time.Millisecond
)

// NewGuess makes a Guess that knows nothing.
func NewGuess() *Guess {
	g := &Guess{seed: maphash.MakeSeed()}
	for i := range g.lanes {
		g.lanes[i].passing = semaphore.NewWeighted(laneWidth)
	}
	return g
}

func (g *Guess) lane(scope string) *lane { return &g.lanes[maphash.String(g.seed, scope)%guessLanes] }

// Together lets a transaction that is guessed be under way beside others that
// are, until leave is called. Like everything here it is for speed: who has waited
// for long goes on. The error is ErrUnavailable, when ctx ends before.
func (g *Guess) Together(ctx context.Context, scope string) (leave func(), err error) {
	return g.lane(scope).enter(ctx, 1)
}

// Alone is Together for one that reads first: beside others it would only meet
// conflicts with them.
func (g *Guess) Alone(ctx context.Context, scope string) (leave func(), err error) {
	return g.lane(scope).enter(ctx, laneWidth)
}

func (l *lane) enter(ctx context.Context, weight int64) (func(), error) {
	if l.passing.TryAcquire(weight) {
		return func() { l.passing.Release(weight) }, nil
	}
	wait, cancel := context.WithTimeout(ctx, laneWait)
	defer cancel()
	switch {
	case l.passing.Acquire(wait, weight) == nil:
		return func() { l.passing.Release(weight) }, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: other transactions of the scope were under way: %w", ErrUnavailable, ctx.Err())
	}
	return func() {}, nil
}

// Foretell has fn decide on what is expected of keys, and expects from then on
// what fn decided to write: the next transaction is decided on that. It is false
// if nothing is expected of a key that fn asks for, or fn has no changes: then a
// guess is not enough. boot is this machine's boot clock.
func (g *Guess) Foretell(keys []state.Key, boot time.Duration, fn Func) (Snapshot, Plan, bool) {
	if len(keys) == 0 {
		return Snapshot{}, Plan{}, false
	}
	l := g.lane(keys[0].Scope)
	l.deciding.Lock()
	defer l.deciding.Unlock()
	for round := 1; CheckKeys(keys) == nil && CheckRound(round) == nil; round++ {
		snap, ok := g.Snapshot(keys, boot)
		if !ok {
			break
		}
		plan, err := fn(snap)
		if err != nil || len(plan.More) == 0 && len(plan.Changes) == 0 {
			break
		}
		if len(plan.More) == 0 {
			g.Written(plan.Changes)
			return snap, plan, true
		}
		keys = append(keys[:len(keys):len(keys)], plan.More...)
	}
	return Snapshot{}, Plan{}, false
}

// Snapshot foretells the records of keys. boot is this machine's boot clock. It
// is false if there is a key that nothing is known of, or nothing recent of the
// engine's clock. Of a kind whose IDs are sums of a hash a record that is not
// known is taken for absent: most are claims of something new.
func (g *Guess) Snapshot(keys []state.Key, boot time.Duration) (Snapshot, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	age := boot - g.at
	if len(keys) == 0 || g.at == 0 || age < 0 || age > guessAge {
		return Snapshot{}, false
	}
	if g.pause > 0 {
		g.pause--
		return Snapshot{}, false
	}
	snap := Snapshot{Now: g.now + age.Milliseconds(), Keys: keys, Items: make([]*state.Sealed, len(keys)), Lineage: g.lineage, Foretold: true}
	for i, key := range keys {
		item, known := g.young[key]
		if !known {
			if item, known = g.old[key]; known {
				g.keep(key, item)
			}
		}
		if !known && !key.Kind.Hashed() {
			return Snapshot{}, false
		}
		snap.Items[i] = item
	}
	return snap, true
}

// Read learns what the engine has shown, and its clock.
func (g *Guess) Read(snap Snapshot, boot time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if snap.Lineage != g.lineage {
		g.young, g.old = nil, nil
	}
	g.now, g.at, g.lineage = snap.Now, boot, snap.Lineage
	for i, key := range snap.Keys {
		g.learn(key, snap.Items[i])
	}
}

// Written learns what a transaction has written, or is about to: whoever takes
// that for granted and is wrong meets a conflict.
func (g *Guess) Written(changes []Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range changes {
		g.learn(c.Key, c.Item)
	}
}

// Doubt ends guessing until something is read again: the engine is in trouble.
func (g *Guess) Doubt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = 0
}

// Judged learns whether a guess was right, or the next will be. The more are wrong in a row, the
// longer nothing is guessed.
func (g *Guess) Judged(right bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if right {
		g.wrong, g.pause = 0, 0
		return
	}
	g.wrong = min(g.wrong+1, 16)
	g.pause = max(g.pause, min(1<<g.wrong>>1, guessPause))
}

func (g *Guess) learn(key state.Key, item *state.Sealed) {
	if item == nil && key.Kind.Hashed() || item != nil && len(item.Data) > guessBytes {
		delete(g.young, key)
		delete(g.old, key)
		return
	}
	g.keep(key, item)
}

// keep remembers a record as one of the latest. The half that was not asked for
// since the last time goes.
func (g *Guess) keep(key state.Key, item *state.Sealed) {
	if g.young == nil || len(g.young) >= guessRecords {
		g.old, g.young = g.young, make(map[state.Key]*state.Sealed, 64)
	}
	g.young[key] = item
}
