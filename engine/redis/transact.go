package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/state"
)

const maxAttempts = 64 // conflicts after which a transaction gives up

// Transact is as the contract says: fn may be called beside others, and what it
// decided is written if everything it was shown is still so. First it is shown
// what is expected, which saves the reading.
func (e *Engine) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	end, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := engine.CheckKeys(keys); err != nil {
		return err
	}
	if len(keys) == 0 {
		return e.alone(ctx, keys, false, fn)
	}
	applied, err := e.guessed(ctx, keys, fn)
	if applied || err != nil && !errors.Is(err, errTurn) {
		return err
	}
	leave, enterErr := e.guess.Alone(ctx, keys[0].Scope)
	if enterErr != nil {
		return enterErr
	}
	defer leave()
	return e.alone(ctx, keys, err != nil, fn)
}

// alone reads before fn decides, and starts again as long as it meets conflicts,
// which are with other processes then. If another process has its turn, it waits
// for the end of that once; after anything else it takes its own. held says that
// another one has.
func (e *Engine) alone(ctx context.Context, keys []state.Key, held bool, fn engine.Func) error {
	var found *reading // by the last attempt
	begin := boot()
	for attempt := range maxAttempts {
		err := e.usable(ctx)
		switch {
		case err != nil:
		case attempt > 0 && len(keys) > 0:
			err = e.takeTurn(ctx, keys[0].Scope, boot()-begin)
			found = nil // it is of before
		case held:
			_, _, err = e.awaitTurn(ctx, keys[0].Scope, 0, 0)
		}
		if err != nil {
			return err
		}
		var applied bool
		found, applied, err = e.attempt(ctx, keys, found, fn)
		switch {
		case applied && attempt > 0:
			e.guess.Judged(true) // in a turn it will be
			return nil
		case applied:
			return nil
		case err != nil && !errors.Is(err, errTurn):
			return err
		}
	}
	return engine.ErrConflict
}

// guessed runs fn on what is expected, and writes its changes if everything is
// so. It reports false without an error if it is not, or if a guess is not
// enough. What was met instead is of no use: others that are under way may be
// applied after it.
func (e *Engine) guessed(ctx context.Context, keys []state.Key, fn engine.Func) (bool, error) {
	leave, err := e.guess.Together(ctx, keys[0].Scope)
	if err != nil {
		return false, err
	}
	defer leave()
	snap, plan, ok := e.guess.Foretell(keys, boot(), func(s engine.Snapshot) (engine.Plan, error) { return fn(e.dated(s)) })
	if !ok {
		return false, nil
	}
	_, applied, err := e.apply(ctx, e.expected(snap), plan)
	switch {
	case err == nil:
		e.guess.Judged(applied)
	case !errors.Is(err, errTurn):
		e.guess.Doubt()
	}
	return applied, err
}

// expected is the reading that a guess stands for. Of the values only the
// versions matter.
func (e *Engine) expected(snap engine.Snapshot) reading {
	r := reading{snap: snap, place: e.layout.place(snap.Keys[0].Scope), buckets: make([]string, len(snap.Keys)), values: make([]string, len(snap.Keys))}
	for i, k := range snap.Keys {
		r.buckets[i] = r.place.record(k)
		if item := snap.Items[i]; item != nil {
			r.values[i] = string(item.Version[:])
		}
	}
	return r
}

// attempt runs fn once, and again as long as it asks for more keys, and writes
// its changes. found is what the last attempt has met, nil if nothing is known.
// It reports false without an error on a conflict, with what it has met.
func (e *Engine) attempt(ctx context.Context, keys []state.Key, found *reading, fn engine.Func) (*reading, bool, error) {
	for round := 1; ; round++ {
		if found == nil {
			read, err := e.read(ctx, keys)
			if err != nil {
				return nil, false, err
			}
			found = &read
		}
		r := found
		if err := e.trust(ctx, r.snap.Lineage.ID); err != nil {
			return nil, false, err
		}
		e.guess.Read(r.snap, boot())
		plan, err := fn(e.dated(r.snap))
		switch {
		case err != nil:
			return nil, false, err
		case len(plan.More) == 0:
			met, applied, err := e.apply(ctx, *r, plan)
			if applied {
				e.guess.Written(plan.Changes)
			}
			return met, applied, err
		}
		keys, found = append(slices.Clip(r.snap.Keys), plan.More...), nil
		if err := engine.CheckKeys(keys); err != nil {
			return nil, false, err
		}
		if err := engine.CheckRound(round); err != nil {
			return nil, false, err
		}
	}
}

// reading is a snapshot with the values as they are stored.
type reading struct {
	snap    engine.Snapshot
	place   place
	buckets []string // of the keys; without keys, that of the store's mark
	values  []string // "" where there is none
}

func (e *Engine) read(ctx context.Context, keys []state.Key) (reading, error) {
	r := reading{snap: engine.Snapshot{Keys: keys, Items: make([]*state.Sealed, len(keys))}, values: make([]string, len(keys))}
	var fields []string
	if len(keys) == 0 {
		r.buckets, fields = []string{e.layout.format()}, []string{format}
	} else {
		r.place = e.layout.place(keys[0].Scope)
		r.buckets, fields = make([]string, len(keys)), make([]string, len(keys))
		for i, k := range keys {
			r.buckets[i], fields[i] = r.place.record(k), k.ID
		}
	}
	answer, err := e.servers.run(ctx, readScript, r.buckets, fields)
	if err != nil {
		return r, unavailable(err)
	}
	return r, r.take(answer, nil)
}

// take reads the answer of the script that reads, or of the one that writes when
// it met a conflict; in that the values stand in an order of their own.
func (r *reading) take(answer rueidis.RedisMessage, order []int) error {
	parts, err := answer.ToArray()
	if err != nil || len(parts) != 4 {
		return unavailable(errAnswer)
	}
	values, err := parts[3].ToArray()
	if err != nil || len(values) != len(r.buckets) {
		return unavailable(errAnswer)
	}
	for n := range r.snap.Keys {
		i := n
		if order != nil {
			i = order[n]
		}
		switch value, err := values[n].ToString(); {
		case rueidis.IsRedisNil(err):
		case err != nil:
			return unavailable(errAnswer)
		default:
			r.values[i], r.snap.Items[i] = value, decode(value)
		}
	}
	return date(&r.snap, parts)
}

// again is a reading of the same keys that has yet to be taken.
func (r *reading) again() *reading {
	fresh := *r
	fresh.snap.Items, fresh.values = make([]*state.Sealed, len(r.values)), make([]string, len(r.values))
	return &fresh
}

var errAnswer = errors.New("the server gave an answer of another form than its script has")

// date reads the clock and the lineage that stand before the values.
func date(snap *engine.Snapshot, parts []rueidis.RedisMessage) error {
	now, err1 := parts[0].AsInt64()
	id, err2 := parts[1].ToString()
	previous, err3 := parts[2].ToString()
	if err1 != nil || err2 != nil || err3 != nil {
		return unavailable(errAnswer)
	}
	if strings.Trim(previous, "0") == "" {
		previous = "" // how the servers write that there is none
	}
	snap.Now, snap.Lineage = now, engine.Lineage{ID: id, Previous: previous}
	return nil
}

// dated puts the injected clock in place of the server's.
func (e *Engine) dated(snap engine.Snapshot) engine.Snapshot {
	if e.options.Clock != nil {
		snap.Now = e.options.Clock.Now().UnixMilli()
	}
	return snap
}

// boot is this machine's own clock, by which that of the server is gone on from.
func boot() time.Duration { return clock.System{}.Boot() }

// apply writes the changes of a plan. It reports false without an error on a
// conflict, with what is there instead, if that is known. errTurn is a conflict
// too.
func (e *Engine) apply(ctx context.Context, r reading, plan engine.Plan) (*reading, bool, error) {
	if len(plan.Changes) == 0 {
		applied, err := e.confirm(ctx, r)
		return nil, applied, err
	}
	at, err := engine.Positions(r.snap.Keys, plan.Changes)
	if err != nil {
		return nil, false, err
	}
	limit := strconv.FormatInt(min(max(plan.NotAfter, 0), state.MaxAmount), 10)
	if e.options.Clock != nil {
		if e.options.Clock.Now().UnixMilli() > plan.NotAfter {
			return nil, false, engine.ErrLate
		}
		limit = ""
	}
	if err := ctx.Err(); err != nil {
		return nil, false, unavailable(err)
	}
	s := newSwap(r, plan.Changes, at)
	who := ""
	if e.turns.has(r.snap.Keys[0].Scope) {
		who = e.turns.who
	}
	keys, args := s.arguments(limit, r.snap.Lineage.ID, e.replicas(), who)
	// From here on the end of ctx stops nothing.
	ctx = context.WithoutCancel(ctx)
	run := e.servers.run
	if s.writes && e.options.Replicas > 0 {
		run = e.servers.runReplicated
	}
	answer, err := run(ctx, s.script(), keys, args)
	if found := r.again(); err == nil && found.take(answer, s.order()) == nil {
		return found, false, nil // a conflict
	}
	applied, err := e.swap(answer, err)
	if applied && !s.writes {
		applied, err = e.confirm(ctx, r)
	}
	return nil, applied, err
}

// replicas is how many replicas a primary must have for its scripts to run.
func (e *Engine) replicas() string {
	if e.options.Replicas == 0 {
		return ""
	}
	return strconv.Itoa(e.options.Replicas)
}

// swap reads the answer of the script that writes.
func (e *Engine) swap(answer rueidis.RedisMessage, err error) (bool, error) {
	var unconfirmed *unconfirmedError
	if err != nil && !errors.As(err, &unconfirmed) {
		return false, writeError(err)
	}
	status, statusErr := answer.ToString()
	if statusErr != nil {
		return false, fmt.Errorf("%w: %w", engine.ErrAmbiguous, errAnswer)
	}
	switch status {
	case done:
		if err != nil {
			return false, writeError(err)
		}
		return true, nil
	case "lineage":
		return false, nil
	case "turn":
		return false, errTurn
	case "late":
		return false, engine.ErrLate
	case "replicas":
		return false, e.wrongReplicas()
	}
	return false, fmt.Errorf("%w: %w", engine.ErrAmbiguous, errAnswer)
}

func (e *Engine) wrongReplicas() error {
	return fmt.Errorf("%w: the primary does not have exactly %d replicas connected, as many as were declared", engine.ErrUnavailable, e.options.Replicas)
}

// confirm makes sure that everything a snapshot showed is durable. On one node
// it is: a server that syncs always gives no answer, to a read neither, before
// it has synced what it wrote until then.
func (e *Engine) confirm(ctx context.Context, r reading) (bool, error) {
	if e.options.Replicas == 0 || len(r.snap.Keys) == 0 {
		return true, nil
	}
	answer, err := e.servers.runReplicated(ctx, touchScript, []string{r.place.prefix + "t"}, []string{r.snap.Lineage.ID, e.replicas()})
	if err != nil {
		// Nothing of the caller's was written.
		return false, unavailable(err)
	}
	switch status, err := answer.ToString(); {
	case err == nil && status == done:
		return true, nil
	case err == nil && status == "lineage":
		return false, nil
	case err == nil && status == "replicas":
		return false, e.wrongReplicas()
	}
	return false, unavailable(errAnswer)
}
