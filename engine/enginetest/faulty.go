package enginetest

import (
	"context"
	"errors"
	"sync"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// Failure is how one Transact of a [FaultyEngine] ends. Each comes as a pair
// with its opposite: the error alone does not tell whether the changes are
// there.
type Failure uint8

// The failures.
const (
	// None: the inner engine's own result.
	None Failure = iota
	// Refuse: ErrUnavailable, nothing written, the function not called.
	Refuse
	// Contend: ErrConflict, nothing written, the function called.
	Contend
	// LoseRequest: ErrAmbiguous, nothing written.
	LoseRequest
	// LoseReply: ErrAmbiguous, everything written.
	LoseReply
	// Delay: ErrAmbiguous, nothing written yet: [FaultyEngine.Deliver] applies
	// the changes later, if nothing that was read has changed by then.
	Delay
	// BreakBefore: ErrBroken, nothing written; then every call is ErrBroken
	// until [FaultyEngine.Heal].
	BreakBefore
	// BreakAfter: as BreakBefore, with everything written.
	BreakAfter
)

// FaultyEngine injects failures into the commits of another engine. All
// methods may be called concurrently.
type FaultyEngine struct {
	engine.Engine

	mu      sync.Mutex
	plan    func(scope string, n int) Failure
	calls   int
	broken  bool
	readErr error
	gates   map[string]chan struct{}
	delayed []delayed
}

type delayed struct {
	snap engine.Snapshot
	plan engine.Plan
}

// Faulty wraps inner; until a failure is planned it adds none.
func Faulty(inner engine.Engine) *FaultyEngine {
	return &FaultyEngine{Engine: inner, gates: map[string]chan struct{}{}}
}

// Plan decides each Transact from now on: n counts them from 0, and scope is
// that of its keys ("" without keys). Nil: no failures.
func (f *FaultyEngine) Plan(plan func(scope string, n int) Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan, f.calls = plan, 0
}

// Next makes the next transactions end so, one each, and those after them
// without failure.
func (f *FaultyEngine) Next(failures ...Failure) {
	f.Plan(func(_ string, n int) Failure {
		if n < len(failures) {
			return failures[n]
		}
		return None
	})
}

// Heal makes a broken engine work again, as reopening does, and ends all
// planned failures.
func (f *FaultyEngine) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken, f.plan, f.readErr = false, nil, nil
}

// FailReads makes Read, Due, Scan, Scopes and Now return err; nil ends it.
func (f *FaultyEngine) FailReads(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readErr = err
}

// Hold makes the transactions of a scope wait, before anything else, until
// release is called. A waiting one does not heed its context, as a commit
// under way does not.
func (f *FaultyEngine) Hold(scope string) (release func()) {
	gate := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gates[scope] = gate
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.gates[scope] == gate {
			delete(f.gates, scope)
		}
		close(gate)
	})
}

// Deliver applies, in their order, the delayed commits whose read sets are
// unchanged, and reports how many those were.
func (f *FaultyEngine) Deliver(ctx context.Context) (applied int, err error) {
	f.mu.Lock()
	late := f.delayed
	f.delayed = nil
	f.mu.Unlock()
	stale := errors.New("changed meanwhile")
	for _, d := range late {
		err := f.Engine.Transact(ctx, d.snap.Keys, func(s engine.Snapshot) (engine.Plan, error) {
			if !sameVersions(s.Items, d.snap.Items) {
				return engine.Plan{}, stale
			}
			return d.plan, nil
		})
		switch {
		case err == nil:
			applied++
		case !errors.Is(err, stale) && !errors.Is(err, engine.ErrLate):
			return applied, err
		}
	}
	return applied, nil
}

func sameVersions(a, b []*state.Sealed) bool {
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) || a[i] != nil && a[i].Version != b[i].Version {
			return false
		}
	}
	return true
}

var errStop = errors.New("enginetest: stop before the commit")

// Transact ends as planned.
func (f *FaultyEngine) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	scope := ""
	if len(keys) > 0 {
		scope = keys[0].Scope
	}
	f.wait(scope)
	failure := f.next(scope)
	switch failure {
	case Refuse:
		return engine.ErrUnavailable
	case Contend:
		return f.withoutCommit(ctx, keys, fn, engine.ErrConflict)
	case LoseRequest, Delay:
		keep := func(snap engine.Snapshot, plan engine.Plan) {}
		if failure == Delay {
			keep = f.keep
		}
		return f.withoutCommit(ctx, keys, func(s engine.Snapshot) (engine.Plan, error) {
			plan, err := fn(s)
			if err == nil && len(plan.More) == 0 {
				keep(s, plan)
			}
			return plan, err
		}, engine.ErrAmbiguous)
	case BreakBefore:
		return f.withoutCommit(ctx, keys, fn, engine.ErrBroken)
	case LoseReply:
		return orElse(f.Engine.Transact(ctx, keys, fn), engine.ErrAmbiguous)
	case BreakAfter:
		return orElse(f.Engine.Transact(ctx, keys, fn), engine.ErrBroken)
	default:
		if f.isBroken() {
			return engine.ErrBroken
		}
		return f.Engine.Transact(ctx, keys, fn)
	}
}

func (f *FaultyEngine) wait(scope string) {
	f.mu.Lock()
	gate := f.gates[scope]
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

// next takes the planned failure of this call; a broken engine has none.
func (f *FaultyEngine) next(scope string) Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken || f.plan == nil {
		return None
	}
	failure := f.plan(scope, f.calls)
	f.calls++
	if failure == BreakBefore || failure == BreakAfter {
		f.broken = true
	}
	return failure
}

func (f *FaultyEngine) isBroken() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

func (f *FaultyEngine) keep(snap engine.Snapshot, plan engine.Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delayed = append(f.delayed, delayed{snap: snap, plan: plan})
}

// withoutCommit runs the function on real snapshots and stops before its
// changes are applied.
func (f *FaultyEngine) withoutCommit(ctx context.Context, keys []state.Key, fn engine.Func, result error) error {
	err := f.Engine.Transact(ctx, keys, func(s engine.Snapshot) (engine.Plan, error) {
		plan, err := fn(s)
		if err == nil && len(plan.More) == 0 {
			err = errStop
		}
		return plan, err
	})
	if errors.Is(err, errStop) {
		return result
	}
	return err
}

func orElse(err, result error) error {
	if err != nil {
		return err
	}
	return result
}

func (f *FaultyEngine) readable() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		return engine.ErrBroken
	}
	return f.readErr
}

// Read fails as [FaultyEngine.FailReads] said.
func (f *FaultyEngine) Read(ctx context.Context, keys []state.Key) (engine.Snapshot, error) {
	if err := f.readable(); err != nil {
		return engine.Snapshot{}, err
	}
	return f.Engine.Read(ctx, keys)
}

// Due fails as [FaultyEngine.FailReads] said.
func (f *FaultyEngine) Due(ctx context.Context, scope string, index engine.Index, kind state.Kind, before int64, cursor string, limit int) ([]engine.DueKey, string, error) {
	if err := f.readable(); err != nil {
		return nil, "", err
	}
	return f.Engine.Due(ctx, scope, index, kind, before, cursor, limit)
}

// Scan fails as [FaultyEngine.FailReads] said.
func (f *FaultyEngine) Scan(ctx context.Context, scope string, kind state.Kind, prefix, cursor string, limit int) ([]engine.Found, string, error) {
	if err := f.readable(); err != nil {
		return nil, "", err
	}
	return f.Engine.Scan(ctx, scope, kind, prefix, cursor, limit)
}

// Scopes fails as [FaultyEngine.FailReads] said.
func (f *FaultyEngine) Scopes(ctx context.Context, cursor string, limit int) ([]string, string, error) {
	if err := f.readable(); err != nil {
		return nil, "", err
	}
	return f.Engine.Scopes(ctx, cursor, limit)
}

// Now fails as [FaultyEngine.FailReads] said.
func (f *FaultyEngine) Now(ctx context.Context) (int64, error) {
	if err := f.readable(); err != nil {
		return 0, err
	}
	return f.Engine.Now(ctx)
}
