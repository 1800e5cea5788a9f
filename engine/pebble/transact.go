package pebble

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/planted"
	"github.com/counterfoil/counterfoil/state"
)

// lane serialises the transactions of the scopes that fall on it.
type lane struct {
	held chan struct{} // of one: full while a transaction reads, decides and applies
	last *commit       // the latest applied, nil before the first; guarded by held
}

// commit is one applied batch on its way to the disk.
type commit struct {
	done chan struct{} // closed once it is durable or failed
	err  error         // set before done is closed
}

// Transact is as the contract says. The keys' scope is locked from the read to
// the apply: the function must not start a transaction in the same engine.
func (e *Engine) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	if err := engine.CheckKeys(keys); err != nil {
		return err
	}
	if err := e.latch.enter(ctx); err != nil {
		return err
	}
	defer e.latch.callers.Done()
	// The database is entered by a goroutine of its own, which a failure may
	// leave there for ever; the caller gets its answer all the same.
	result := make(chan error, 1)
	go func() {
		defer e.latch.workers.Done()
		result <- e.transact(ctx, keys, fn)
	}()
	select {
	case err := <-result:
		return err
	case <-e.latch.broken:
		return e.latch.failure()
	}
}

func (e *Engine) transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	l := e.laneOf(keys)
	select {
	case l.held <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, ctx.Err())
	case <-e.latch.broken:
		return e.latch.failure()
	}
	t := &transaction{engine: e, fn: fn}
	batch, err := t.decide(keys)
	switch {
	case err != nil:
		<-l.held
		return err
	case batch == nil:
		last := l.last
		<-l.held
		return e.await(ctx, last)
	}
	if err := e.apply(batch); err != nil {
		e.latch.fail(fmt.Errorf("apply a commit: %w", err))
		return e.latch.failure()
	}
	c := &commit{done: make(chan struct{})}
	l.last = c
	t.applied()
	<-l.held
	return e.sync(batch, c)
}

func (e *Engine) laneOf(keys []state.Key) *lane {
	if len(keys) == 0 {
		return &e.lanes[0]
	}
	return &e.lanes[maphash.String(e.seed, keys[0].Scope)%lanes]
}

// apply puts the batch into the log's buffer and the table in memory. From here
// on it may become durable, whatever comes back.
func (e *Engine) apply(batch *pebble.Batch) (err error) {
	defer func() {
		if r := recover(); r != nil { // how the database ends a commit after its log has failed
			err = fmt.Errorf("%v", r) //nolint:err113 // the database's own words
		}
	}()
	switch {
	case planted.On(planted.UnsyncedCommit):
		return e.db.Apply(batch, pebble.NoSync)
	case planted.On(planted.FatalThatReturns):
		return e.db.Apply(batch, pebble.Sync)
	}
	return e.db.ApplyNoSyncWait(batch, pebble.Sync)
}

// sync waits for the disk. Only a nil error of SyncWait means durable.
func (e *Engine) sync(batch *pebble.Batch, c *commit) error {
	defer close(c.done)
	if planted.On(planted.UnsyncedCommit) || planted.On(planted.FatalThatReturns) {
		return nil
	}
	if c.err = batch.SyncWait(); c.err != nil {
		e.latch.fail(fmt.Errorf("sync a commit: %w", c.err))
		return e.latch.failure()
	}
	if c.err = e.latch.check(); c.err != nil {
		return c.err
	}
	_ = batch.Close() // gives its memory back
	return nil
}

// await waits until what was seen is durable; c is the last commit that was
// applied before.
func (e *Engine) await(ctx context.Context, c *commit) error {
	if c == nil {
		return e.latch.check()
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, ctx.Err())
	case <-e.latch.broken:
		return e.latch.failure()
	}
	if c.err != nil {
		return e.latch.failure()
	}
	return e.latch.check()
}

// transaction is what one call reads and writes while it holds its lane.
type transaction struct {
	engine  *Engine
	fn      engine.Func
	keys    []state.Key
	items   []*state.Sealed
	encoded [][]byte // the data key of each key
	hashes  []uint64 // its hash in the filter

	removed []uint64   // hashes of the keys that the batch deletes
	indexed []earliest // what the batch adds to each index
}

// decide reads and calls the function until it asks for nothing more, and
// makes a batch of its changes, nil if there are none.
func (t *transaction) decide(keys []state.Key) (*pebble.Batch, error) {
	for round := 1; ; round++ {
		if err := t.read(keys); err != nil {
			return nil, err
		}
		plan, err := t.fn(engine.Snapshot{Now: t.engine.now(), Keys: t.keys, Items: t.items})
		switch {
		case err != nil:
			return nil, err
		case len(plan.More) == 0:
			return t.batch(plan)
		}
		if err := engine.CheckRound(round); err != nil {
			return nil, err
		}
		if err := engine.CheckKeys(append(t.keys[:len(t.keys):len(t.keys)], plan.More...)); err != nil {
			return nil, err
		}
		keys = plan.More
	}
}

// read appends the records of keys. Those that were read before cannot have
// changed: the lane is held. Slices that the function has seen are not touched.
func (t *transaction) read(keys []state.Key) error {
	n := len(t.keys)
	t.keys = append(t.keys[:n:n], keys...)
	t.items = append(t.items[:n:n], make([]*state.Sealed, len(keys))...)
	size := 0
	for _, k := range keys {
		size += 1 + 2 + len(k.Scope) + 1 + len(k.ID)
	}
	buf := make([]byte, 0, size)
	for i, k := range keys {
		start := len(buf)
		buf = appendDataKey(buf, k)
		key := buf[start:len(buf):len(buf)]
		hash := t.engine.filter.hash(key)
		t.encoded = append(t.encoded, key)
		t.hashes = append(t.hashes, hash)
		if !t.engine.filter.mayHave(hash) {
			continue
		}
		item, err := t.engine.get(key)
		if err != nil {
			return err
		}
		t.items[n+i] = item
	}
	return nil
}

// get searches for one record. One that cannot be read is damaged, not absent.
func (e *Engine) get(key []byte) (*state.Sealed, error) {
	value, closer, err := e.db.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, nil //nolint:nilnil // absent
	case pebble.IsCorruptionError(err):
		return damaged(nil), nil
	case err != nil:
		return nil, fmt.Errorf("%w: read: %w", engine.ErrUnavailable, err)
	}
	item := parseOrDamaged(value)
	if err := closer.Close(); err != nil {
		return nil, fmt.Errorf("%w: read: %w", engine.ErrUnavailable, err)
	}
	return item, nil
}

// batch encodes the changes. The clock is compared last.
func (t *transaction) batch(plan engine.Plan) (*pebble.Batch, error) {
	if len(plan.Changes) == 0 {
		return nil, nil //nolint:nilnil // nothing to write
	}
	at, err := t.positions(plan.Changes)
	if err != nil {
		return nil, err
	}
	size := 64
	for i, c := range plan.Changes {
		size += 4*len(t.encoded[at[i]]) + 64
		if c.Item != nil {
			size += len(c.Item.Data)
		}
	}
	b := t.engine.db.NewBatchWithSize(size)
	order := t.order(at)
	for _, write := range []func(*pebble.Batch, int, *state.Sealed) error{t.record, t.index} {
		for _, i := range order {
			if err := write(b, at[i], plan.Changes[i].Item); err != nil {
				return nil, errors.Join(err, b.Close())
			}
		}
	}
	if b.Empty() { // it only deletes what is absent
		return nil, b.Close()
	}
	if t.engine.now() > plan.NotAfter {
		return nil, errors.Join(engine.ErrLate, b.Close())
	}
	for i, c := range plan.Changes {
		if c.Item != nil && t.items[at[i]] == nil {
			t.engine.filter.add(t.hashes[at[i]])
		}
	}
	return b, nil
}

// positions is [engine.Positions], faster where the changes are mostly in the
// order of the keys.
func (t *transaction) positions(changes []engine.Change) ([]int, error) {
	at := make([]int, len(changes))
	next, steps := 0, 4*len(t.keys)
	for i := range changes {
		for steps > 0 && t.keys[next] != changes[i].Key {
			next = (next + 1) % len(t.keys)
			steps--
		}
		if steps == 0 {
			return engine.Positions(t.keys, changes)
		}
		at[i], next = next, (next+1)%len(t.keys)
	}
	if t.repeat(at) {
		return engine.Positions(t.keys, changes)
	}
	return at, nil
}

// order gives the changes about in the order of their keys: neighbours are
// inserted faster one after the other. The index entries follow together, for
// the same reason.
func (t *transaction) order(at []int) []int {
	heads := make([]uint64, len(at))
	order := make([]int, len(at))
	for i, p := range at {
		head := [8]byte{byte(t.keys[p].Kind)}
		copy(head[1:], t.keys[p].ID)
		heads[i], order[i] = binary.BigEndian.Uint64(head[:]), i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(heads[a], heads[b]) })
	return order
}

// repeat reports whether two of the positions are of keys of one hash, which
// may be one key.
func (t *transaction) repeat(at []int) bool {
	mask := 1<<bits.Len(uint(2*len(at))) - 1
	seen := make([]uint64, mask+1)
	for _, p := range at {
		hash := t.hashes[p]
		slot := int(hash) & mask //nolint:gosec // some of its bits
		for seen[slot] != 0 {
			if seen[slot] == hash {
				return true
			}
			slot = (slot + 1) & mask
		}
		seen[slot] = hash
	}
	return false
}

// record writes or deletes one record.
func (t *transaction) record(b *pebble.Batch, at int, item *state.Sealed) error {
	key := t.encoded[at]
	switch {
	case item != nil:
		op := b.SetDeferred(len(key), valueSize(item))
		copy(op.Key, key)
		putValue(op.Value, item)
		return op.Finish()
	case t.items[at] != nil:
		t.removed = append(t.removed, t.hashes[at])
		return b.Delete(key, nil)
	}
	return nil
}

// index writes those index entries of one record that differ.
func (t *transaction) index(b *pebble.Batch, at int, item *state.Sealed) error {
	k, old := t.keys[at], t.items[at]
	for _, x := range indexes {
		was, is := x.index.Time(old), x.index.Time(item)
		if was == is {
			continue
		}
		if was > 0 {
			if err := b.Delete(engine.DueKey{Key: k, At: was}.Append([]byte{x.space}), nil); err != nil {
				return err
			}
		}
		if is > 0 {
			if err := setDue(b, x.space, engine.DueKey{Key: k, At: is}); err != nil {
				return err
			}
			t.note(x.index, k.Kind, is)
		}
	}
	if k.Kind == state.KindScope && (old == nil) != (item == nil) && k == state.ScopeKey(k.Scope) {
		return setScope(b, k.Scope, item != nil)
	}
	return nil
}

func setDue(b *pebble.Batch, space byte, d engine.DueKey) error {
	op := b.SetDeferred(1+2+len(d.Key.Scope)+1+8+len(d.Key.ID), 0)
	op.Key[0] = space
	d.Append(op.Key[1:1])
	return op.Finish()
}

func setScope(b *pebble.Batch, scope string, there bool) error {
	key := append([]byte{scopeSpace}, scope...)
	if there {
		return b.Set(key, nil, nil)
	}
	return b.Delete(key, nil)
}

// earliest is the lowest time that a transaction adds to an index of its scope.
type earliest struct {
	index engine.Index
	kind  state.Kind
	at    int64
}

// note keeps the earliest time of each index and kind, of which there are few.
func (t *transaction) note(index engine.Index, kind state.Kind, at int64) {
	for i := range t.indexed {
		if n := &t.indexed[i]; n.index == index && n.kind == kind {
			n.at = min(n.at, at)
			return
		}
	}
	t.indexed = append(t.indexed, earliest{index, kind, at})
}

// applied takes the deleted keys out of the filter and notes what the indexes
// got, before the lane is free.
func (t *transaction) applied() {
	for _, n := range t.indexed {
		t.engine.horizons.added(dueList{t.keys[0].Scope, n.index, n.kind}, n.at)
	}
	for _, hash := range t.removed {
		t.engine.filter.remove(hash)
	}
}
