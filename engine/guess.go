package engine

import (
	"sync"
	"time"

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
// wrote before, so that an engine over a network can do without asking first.
// It is for speed alone: what is decided on a guess is applied only if the
// engine finds everything as guessed, in the same step in which it would compare
// what it had read; a function's error on a guess, or a plan without changes,
// says nothing. The zero value knows nothing. It is safe for concurrent use.
type Guess struct {
	mu         sync.Mutex
	young, old map[state.Key]*state.Sealed // nil: known to be absent
	now        int64                       // the engine's clock, ms
	at         time.Duration               // this machine's boot clock then
	lineage    Lineage
	wrong      int // guesses in a row
	pause      int // transactions that are not to be guessed
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

// Judged learns whether a guess was right. The more are wrong in a row, the
// longer nothing is guessed.
func (g *Guess) Judged(right bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if right {
		g.wrong = 0
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
