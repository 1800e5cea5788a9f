package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/planted"
	"github.com/counterfoil/counterfoil/state"
)

// scope is what the store keeps in memory for a scope that it works in.
type scope struct {
	name string

	// Guarded by Store.mu.
	queue   []*request
	workers int
	flying  int // requests in groups under way

	alone atomic.Int32 // groups to be cut without waiting

	mu      sync.Mutex // guards the fields below
	mark    int64      // the last time that was decided on, ms
	slot    uint16     // of this instance's writer record, if held
	held    bool
	tenure  int           // counts the seats that were lost
	open    []*commit     // that are not acknowledged, and may be applied
	acked   state.Version // of the last commit that was acknowledged
	lineage string        // of the data when it was last read, "" before and where there is none
	cache   map[state.Key]cached
	view    *state.View                 // of the decision under way
	dirty   map[state.Key]*state.Record // what it writes
}

// cached is a record that was opened before; the bytes that it was opened from
// tell whether it still is what the engine has.
type cached struct {
	data []byte
	rec  *state.Record
}

const cacheRecords = 2048

// request is one batch that waits for its answer.
type request struct {
	batch state.Batch
	size  int
	sent  int64 // the boot clock when it was sent, ms
	// openEnded: the batch names no time after which it is stale.
	openEnded bool
	taken     atomic.Bool // by a group, or by a caller who left before that
	done      chan result
}

type result struct {
	outcome state.Outcome
	err     error
}

// Do runs a batch and returns its outcome when that is durable. An outcome that
// is neither Applied nor Repeated is a refusal: nothing was written. The errors
// are those of package state.
//
// When ctx ends while the batch still waits for a group, nothing has happened
// and the error is [state.ErrUnavailable]; when it ends later, the commit goes
// on without its caller, and the error is [state.ErrUnknown].
func (s *Store) Do(ctx context.Context, b *state.Batch) (state.Outcome, error) {
	out, err := s.do(ctx, b)
	if err != nil || out.Applied || out.Repeated {
		return out, err
	}
	// At a cap, make room by sweeping what is over, once, and try again.
	for _, r := range out.Refusals {
		if r.Reason != state.Full && r.Reason != state.OwnerFull {
			return out, nil
		}
	}
	swept := 0
	for _, op := range b.Ops {
		if c, ok := op.(state.Claim); ok {
			n, err := s.sweepKind(ctx, b.Scope, c.Key.Kind, 4*sweepBatch)
			if err != nil {
				return out, nil //nolint:nilerr // the refusal stands; the sweep only might have helped.
			}
			swept += n
		}
	}
	if swept == 0 {
		return out, nil
	}
	return s.do(ctx, b)
}

func (s *Store) do(ctx context.Context, b *state.Batch) (state.Outcome, error) {
	checked, err := b.Checked()
	if err != nil {
		return state.Outcome{}, err
	}
	if err := ctx.Err(); err != nil {
		return state.Outcome{}, fmt.Errorf("%w: nothing was sent: %w", state.ErrUnavailable, err)
	}
	r := &request{batch: checked, size: b.Size(), sent: s.time.boot(), openEnded: b.NotAfter == 0, done: make(chan result, 1)}
	if err := s.enqueue(r); err != nil {
		return state.Outcome{}, err
	}
	select {
	case res := <-r.done:
		return res.outcome, res.err
	case <-ctx.Done():
	}
	if r.taken.CompareAndSwap(false, true) {
		return state.Outcome{}, fmt.Errorf("%w: the caller left before the batch was taken up: %w", state.ErrUnavailable, ctx.Err())
	}
	select {
	case res := <-r.done:
		return res.outcome, res.err
	default:
		s.unknown.Add(1)
		return state.Outcome{}, fmt.Errorf("%w: the caller left while it was under way: %w", state.ErrUnknown, ctx.Err())
	}
}

// enqueue puts a request into its scope's queue and sees to it that a worker
// takes it up.
func (s *Store) enqueue(r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readyLocked(); err != nil {
		return err
	}
	if s.queued >= queueBatches || s.bytes+r.size > queueBytes {
		return fmt.Errorf("%w: too many batches are waiting", state.ErrUnavailable)
	}
	sc := s.scopes[r.batch.Scope]
	if sc == nil {
		sc = &scope{name: r.batch.Scope, cache: map[state.Key]cached{}, view: state.NewView(), dirty: map[state.Key]*state.Record{}, mark: s.startMark()}
		s.scopes[r.batch.Scope] = sc
	}
	sc.queue = append(sc.queue, r)
	s.queued++
	s.bytes += r.size
	s.staff(sc)
	return nil
}

// staff lets one more worker take up what waits in a scope, if that is worth
// while. Store.mu is held.
func (s *Store) staff(sc *scope) {
	if len(sc.queue) == 0 || sc.workers > 0 && (sc.workers >= s.guarantee.Pipeline || !s.worthwhile(sc)) {
		return
	}
	sc.workers++
	select {
	case s.handed <- sc:
	default:
		s.work.Add(1)
		go s.serve(sc)
	}
}

// worthwhile reports whether enough waits in a scope for a group beside those
// under way. A shared engine takes one after another anyway, so that a second
// one only pays if it is as large. Store.mu is held.
func (s *Store) worthwhile(sc *scope) bool {
	return !s.guarantee.Shared || sc.flying > 0 && len(sc.queue) >= max(sc.flying, shareFrom)
}

// share is how large a group may become: on a shared engine not so large that
// nothing is left to be decided while it is under way. Store.mu is held.
func (s *Store) share(sc *scope) int {
	if !s.guarantee.Shared || s.guarantee.Pipeline < 2 {
		return groupBatches
	}
	return min(max((len(sc.queue)+sc.flying+s.guarantee.Pipeline-1)/s.guarantee.Pipeline, shareFrom), groupBatches)
}

// shareFrom is the size from which a group is split.
const shareFrom = 32

// startMark is what the time of a scope begins with: on an engine of one clock
// the mark of the whole store, else what the scope's writer records say.
func (s *Store) startMark() int64 {
	if s.guarantee.Shared {
		return 0
	}
	return s.highest()
}

// serve commits groups of a scope until none waits, and then of another scope
// that is handed to it. A few workers stay when there is nothing to do: a new
// one would have to grow its stack first.
func (s *Store) serve(sc *scope) {
	defer s.work.Done()
	for {
		s.drain(sc)
		if s.idle.Add(1) > idleWorkers {
			s.idle.Add(-1)
			return
		}
		select {
		case sc = <-s.handed:
			s.idle.Add(-1)
		case <-s.stopped.Done():
			return
		}
	}
}

// drain commits groups of one scope until none waits.
func (s *Store) drain(sc *scope) {
	answered := 0
	for {
		s.gather(sc, answered)
		s.running <- struct{}{}
		group := s.cut(sc, answered)
		if group != nil {
			s.commit(sc, group)
		}
		<-s.running
		if group == nil {
			return
		}
		answered = len(group)
	}
}

// gather waits a moment for the callers who were just answered, while they come
// back with their next batches: one larger group costs less than two. It is for
// speed only, and left for a while where few come back.
func (s *Store) gather(sc *scope, answered int) {
	waiting := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(sc.queue)
	}
	switch {
	case answered < gatherFrom:
		return
	case sc.alone.Load() > 0:
		sc.alone.Add(-1)
		return
	}
	before := waiting()
	now := before
	for turns := 0; turns < gatherTurns && now < min(before+answered, groupBatches); turns++ {
		runtime.Gosched() // the shortest timer is longer
		if n := waiting(); n > now {
			now, turns = n, 0
		}
	}
	if now-before < answered/4 {
		sc.alone.Store(gatherPause)
	}
}

// Limits of gathering.
const (
	gatherTurns = 300 // given to others without anybody coming back, about 30 µs
	gatherFrom  = 8   // callers answered at once
	gatherPause = 100 // groups that nobody waits after, when few came back
)

// cut takes the next group from the queue, after one of so many was answered.
// With none left that is worth while the worker is counted out in the same step,
// so that no request is left without one.
func (s *Store) cut(sc *scope, answered int) []*request {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc.flying -= answered
	var group []*request
	size, n := 0, 0
	share := s.share(sc)
	if sc.flying > 0 && !s.worthwhile(sc) {
		share = 0
	}
	for _, r := range sc.queue {
		if len(group) == share || size > 0 && size+r.size > groupBytes {
			break
		}
		n++
		s.queued--
		s.bytes -= r.size
		if r.taken.CompareAndSwap(false, true) {
			group = append(group, r)
			size += r.size
		}
	}
	sc.queue = append(sc.queue[:0:0], sc.queue[n:]...)
	if (len(sc.queue) == 0 || share == 0) && group == nil {
		sc.workers--
		if sc.workers == 0 && sc.vacant() {
			delete(s.scopes, sc.name)
		}
		return nil
	}
	if group == nil {
		group = []*request{} // everybody left; there may be more behind them
	}
	sc.flying += len(group)
	s.staff(sc)
	return group
}

// refuseWaiting answers everything in a queue. Store.mu is held.
func (s *Store) refuseWaiting(sc *scope, err error) {
	for _, r := range sc.queue {
		s.queued--
		s.bytes -= r.size
		if r.taken.CompareAndSwap(false, true) {
			r.done <- result{err: err}
		}
	}
	sc.queue = nil
}

// commit decides a group and answers everybody in it.
func (s *Store) commit(sc *scope, group []*request) {
	if len(group) == 0 {
		return
	}
	if err := s.ready(); err != nil {
		answer(group, nil, err)
		return
	}
	t := transaction{store: s, scope: sc, group: group}
	results, err := t.run()
	answer(group, results, err)
}

func answer(group []*request, results []result, err error) {
	for i, r := range group {
		if err != nil {
			r.done <- result{err: err}
			continue
		}
		r.done <- results[i]
	}
}

// transaction is the commit of one group.
type transaction struct {
	store *Store
	scope *scope
	group []*request

	now     int64
	boot    int64         // the boot clock at the last decision, ms
	results []result      // of the last decision
	drawn   state.Version // for the next decision; none that the engine was given had it
	last    *commit       // of the last decision, nil if it writes nothing
	place   seat
	doubts  []*commit // earlier ones of which the engine does not know what became of them
	settled *commit   // one of these that turned out to be applied
}

// run commits the group. An error is everybody's.
func (t *transaction) run() ([]result, error) {
	s := t.store
	defer t.close()
	keys := t.keys()
	var settle context.Context // bounds how long a doubtful commit is tried again
	for {
		ctx, cancel := context.WithTimeout(context.Background(), commitFor)
		err := s.engine.Transact(ctx, keys, t.decide)
		cancel()
		if err != nil && settle == nil {
			var stop context.CancelFunc
			settle, stop = context.WithTimeout(context.Background(), settleFor)
			defer stop()
		}
		switch {
		case err == nil:
			t.applied()
			if t.settled != nil {
				return t.settled.results, nil
			}
			return t.results, nil
		case errors.Is(err, engine.ErrLate):
			if settle.Err() == nil {
				continue
			}
			return nil, t.nothing(err)
		case errors.Is(err, engine.ErrBroken):
			s.close(err)
			s.unknown.Add(uint64(len(t.group)))
			return nil, fmt.Errorf("%w: %w", state.ErrUnknown, err)
		case errors.Is(err, engine.ErrAmbiguous):
			t.doubt()
			if !s.guarantee.Shared {
				s.close(err)
				return nil, t.unknown(err)
			}
			if settle.Err() != nil {
				return nil, t.unknown(err)
			}
			continue
		default:
			return nil, t.nothing(err)
		}
	}
}

// nothing is the error of a group that certainly wrote nothing, unless an
// earlier attempt may have.
func (t *transaction) nothing(err error) error {
	if len(t.doubts) > 0 {
		return t.unknown(err)
	}
	if errors.Is(err, state.ErrClock) || errors.Is(err, state.ErrNoScope) || errors.Is(err, state.ErrCorrupt) ||
		errors.Is(err, state.ErrKeyUnknown) || errors.Is(err, state.ErrUnknown) || errors.Is(err, state.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", state.ErrUnavailable, err)
}

func (t *transaction) unknown(err error) error {
	t.store.unknown.Add(uint64(len(t.group)))
	return fmt.Errorf("%w: %w", state.ErrUnknown, err)
}

// doubt keeps the last decision as one that may or may not have been applied.
func (t *transaction) doubt() {
	if t.last != nil {
		t.doubts, t.last = append(t.doubts, t.last), nil
	}
}

// applied notes that the engine has said yes.
func (t *transaction) applied() {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if t.settled != nil {
		t.scope.acknowledged(t.settled)
	}
	if t.last == nil {
		return
	}
	t.scope.slot, t.scope.held = t.place.slot, true
	t.scope.replaced(t.last)
	t.last = nil
	// Only what a writer record says too: the witness must never be ahead of the engine.
	t.store.time.advance(t.now)
}

// close forgets what became of nothing, and leaves what is not known to those
// who come later: they must be able to tell what they find.
func (t *transaction) close() {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if t.last != nil {
		t.scope.dropped(t.last)
	}
	for _, c := range t.doubts {
		c.over, c.results = true, nil
	}
}

// keys lists what the group certainly needs.
func (t *transaction) keys() []state.Key {
	t.scope.mu.Lock()
	slot, held := t.scope.slot, t.scope.held
	t.scope.mu.Unlock()
	keys := make([]state.Key, 0, 4*len(t.group)+2)
	keys = append(keys, state.ScopeKey(t.scope.name))
	if held {
		keys = append(keys, state.WriterKey(t.scope.name, slot))
	}
	for _, r := range t.group {
		keys = r.batch.Keys(keys, slot)
	}
	return distinct(keys)
}

// errForetold: what may have been applied is settled by what is there alone.
var errForetold = errors.New("a doubtful commit cannot be settled by a guess")

// decide is the engine.Func of the group: it decides every batch on top of the
// ones before it.
func (t *transaction) decide(snap engine.Snapshot) (engine.Plan, error) {
	s, sc := t.store, t.scope
	t.results, t.settled = nil, nil
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if t.last != nil {
		// It came to nothing, but may have been shown as what is to come.
		sc.dropped(t.last)
		t.last = nil
	}
	if snap.Foretold && len(t.doubts) > 0 {
		return engine.Plan{}, errForetold
	}
	t.boot = s.time.boot()
	if err := s.time.judgeAt(snap.Now, t.boot, sc.mark); err != nil {
		return engine.Plan{}, err
	}
	view := t.view(snap)
	moved, more := t.lineage(view, snap.Lineage)
	if more != nil {
		return engine.Plan{More: more}, nil
	}
	w, more, err := t.seat(view, snap)
	if err != nil || more != nil {
		return engine.Plan{More: more}, err
	}
	if t.settled != nil {
		return engine.Plan{}, nil
	}
	if t.drawn.IsZero() {
		if err := s.options.Entropy.Fill(t.drawn[:]); err != nil {
			return engine.Plan{}, fmt.Errorf("%w: %w", state.ErrUnavailable, err)
		}
	}
	version := t.drawn
	if planted.On(planted.RestartedVersions) {
		version = s.counted()
	}
	results := make([]result, len(t.group))
	dirty := sc.dirty
	clear(dirty)
	order := make([]state.Key, 0, 2*len(t.group)+4)
	write := func(writes []state.Write) {
		view.Apply(writes)
		for _, w := range writes {
			if _, ok := dirty[w.Key]; !ok {
				order = append(order, w.Key)
			}
			dirty[w.Key] = w.Record
		}
	}
	if moved != nil {
		rec, _, _ := view.Get(state.ScopeKey(sc.name))
		write([]state.Write{{Key: state.ScopeKey(sc.name), Record: rec.WithScope(*moved, version, t.now)}})
		if moved.Quarantine != "" && rec.Scope().Quarantine == "" {
			s.options.Log.Error("a scope is in quarantine", "scope", sc.name, "reason", moved.Quarantine)
		}
	}
	var need []state.Key
	for i, r := range t.group {
		b := &r.batch
		if r.openEnded {
			b.NotAfter = t.notAfter(r)
		}
		d := state.Decide(view, b, state.Context{Now: t.now, Version: version, Shard: w.slot, Seq: uint32(i)})
		results[i] = result{d.Outcome, d.Err}
		need = append(need, d.Need...)
		write(d.Writes)
	}
	if len(need) > 0 {
		return engine.Plan{More: distinct(need)}, nil
	}
	t.results, t.place = results, w
	sc.mark = max(sc.mark, t.now)
	if len(order) == 0 {
		return engine.Plan{}, nil
	}
	t.last, t.drawn = sc.decided(version, w.was, results), state.Version{}
	write(w.writes(view, s.instance, sc.name, version, t.now))
	plan := engine.Plan{Changes: make([]engine.Change, 0, len(order)), NotAfter: t.now + notAfterMS}
	for _, k := range order {
		rec := dirty[k]
		if rec == nil {
			plan.Changes = append(plan.Changes, engine.Change{Key: k})
			continue
		}
		item := s.keys.Load().Seal(k, rec)
		plan.Changes = append(plan.Changes, engine.Change{Key: k, Item: item})
		sc.remember(k, item.Data, rec)
	}
	return plan, nil
}

// view opens what the engine read, and with it settles the time of the group.
func (t *transaction) view(snap engine.Snapshot) *state.View {
	sc := t.scope
	view := sc.view
	view.Reset()
	t.now = max(snap.Now, sc.mark)
	for i, item := range snap.Items {
		key := snap.Keys[i]
		if item == nil {
			view.Absent(key)
			continue
		}
		rec, err := t.open(key, item)
		switch {
		case err != nil && planted.On(planted.CorruptIsAbsent):
			view.Absent(key)
		case err != nil:
			view.Unreadable(key, item.Version, err)
		case rec.Updated > snap.Now+state.Tolerance:
			view.Unreadable(key, item.Version, &state.RecordError{Key: key, Err: state.ErrClock})
		default:
			t.now = max(t.now, rec.Updated)
			view.Load(key, rec)
		}
	}
	return view
}

func (t *transaction) open(key state.Key, item *state.Sealed) (*state.Record, error) {
	if c, ok := t.scope.cache[key]; ok && c.rec.Version == item.Version && bytes.Equal(c.data, item.Data) {
		return c.rec, nil
	}
	rec, err := t.store.open(key, item)
	if err == nil {
		t.scope.remember(key, item.Data, rec)
	}
	return rec, err
}

// vacant reports whether nothing is lost by forgetting the scope.
func (sc *scope) vacant() bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return !sc.held && len(sc.open) == 0
}

// remember keeps an opened record that will be wanted again soon.
func (sc *scope) remember(key state.Key, data []byte, rec *state.Record) {
	switch key.Kind {
	case state.KindScope, state.KindWriter, state.KindQuota, state.KindBudget:
	default:
		return
	}
	if len(sc.cache) >= cacheRecords {
		clear(sc.cache)
	}
	sc.cache[key] = cached{data, rec}
}

// notAfter bounds how late a batch may be decided that names no bound itself:
// a minute after it was sent, and never after what it claims is over.
func (t *transaction) notAfter(r *request) int64 {
	bound := t.now + batchLifeMS - (t.boot - r.sent)
	for _, op := range r.batch.Ops {
		if c, ok := op.(state.Claim); ok && c.Expires != 0 {
			bound = min(bound, c.Expires)
		}
	}
	return bound
}

// distinct drops keys that stand in front of themselves already.
func distinct(keys []state.Key) []state.Key {
	if len(keys) <= 16 {
		unique := keys[:0]
		for _, k := range keys {
			if !slices.Contains(unique, k) {
				unique = append(unique, k)
			}
		}
		return unique
	}
	seen := make(map[state.Key]struct{}, len(keys))
	unique := keys[:0]
	for _, k := range keys {
		if _, ok := seen[k]; !ok {
			seen[k] = struct{}{}
			unique = append(unique, k)
		}
	}
	return unique
}
