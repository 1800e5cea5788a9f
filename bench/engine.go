package main

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/pebble"
	"github.com/counterfoil/counterfoil/state"
)

// maxGroup bounds how many callers one commit serves.
const maxGroup = 1024

// bareEngine is the engine alone under a loop that groups callers, without
// store, seal or rules: what the whole claim path can at most reach.
type bareEngine struct {
	engine  engine.Engine
	waiting chan *create
	workers chan struct{} // ends of the loops
	n       int
}

// create is one caller's new record.
type create struct {
	key    state.Key
	item   *state.Sealed
	answer chan error
}

func newBareEngine(e engine.Engine) *bareEngine {
	b := &bareEngine{engine: e, waiting: make(chan *create, maxGroup), workers: make(chan struct{}), n: e.Guarantee().Pipeline}
	for range b.n {
		go b.loop()
	}
	return b
}

const scope = "default"

// newCreate draws a key as a permit's marker has one, 32 bytes, and a record
// with an expiry, as long as a sealed one with a body of 150 bytes.
func newCreate(r *rand.Rand, now int64) *create {
	var id [32]byte
	for i := 0; i < len(id); i += 8 {
		binary.LittleEndian.PutUint64(id[i:], r.Uint64())
	}
	c := &create{
		key:    state.Key{Scope: scope, Kind: state.KindMarker, ID: string(id[:])},
		item:   &state.Sealed{Expiry: now + 3_600_000 + r.Int64N(1000), Data: make([]byte, sealedBytes)},
		answer: make(chan error, 1),
	}
	binary.LittleEndian.PutUint64(c.item.Version[:], r.Uint64())
	return c
}

// sealedBytes is about what a record with a body of 150 bytes has when sealed.
const sealedBytes = 320

func (b *bareEngine) call(c *create) error {
	b.waiting <- c
	return <-c.answer
}

var errTaken = errors.New("the key is taken")

func (b *bareEngine) loop() {
	defer func() { b.workers <- struct{}{} }()
	var group []*create
	for first := range b.waiting {
		group = append(group[:0], first)
		for more := true; more && len(group) < maxGroup; {
			select {
			case next, ok := <-b.waiting:
				if more = ok; ok {
					group = append(group, next)
				}
			default:
				more = false
			}
		}
		err := b.commit(group)
		for _, c := range group {
			c.answer <- err
		}
	}
}

func (b *bareEngine) commit(group []*create) error {
	keys := make([]state.Key, len(group))
	for i, c := range group {
		keys[i] = c.key
	}
	return b.engine.Transact(context.Background(), keys, func(s engine.Snapshot) (engine.Plan, error) {
		p := engine.Plan{NotAfter: s.Now + 2000, Changes: make([]engine.Change, len(group))}
		for i, c := range group {
			if s.Items[i] != nil {
				return p, errTaken
			}
			p.Changes[i] = engine.Change{Key: c.key, Item: c.item}
		}
		return p, nil
	})
}

func (b *bareEngine) close() error {
	close(b.waiting)
	for range b.n {
		<-b.workers
	}
	return b.engine.Close()
}

func openPebble(dir string) (*pebble.Engine, error) {
	dir = filepath.Join(dir, "store")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := pebble.Create(dir, pebble.Options{}); err != nil {
		return nil, err
	}
	return pebble.Open(dir, pebble.Options{})
}
