package enginetest

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/state"
)

// flaws are engines that break one sentence of the contract each, and the
// clause that must catch it.
var flaws = []struct {
	name   string
	clause string
	flaw   flaw
}{
	{"compares only the keys that it writes", "KeyThatWasOnlyReadIsCompared", flaw{compare: writtenOnly}},
	{"compares only the keys that it writes", "AbsentKeyThatWasOnlyReadIsCompared", flaw{compare: writtenOnly}},
	{"compares only the keys that it writes", "KeyDeletedMeanwhileIsCompared", flaw{compare: writtenOnly}},
	{"compares the keys of the last round", "KeyOfAnEarlierRoundIsCompared", flaw{compare: lastRound}},
	{"compares data in place of versions", "KeyRecreatedWithTheSameBytesIsCompared", flaw{compare: byData}},
	{"compares nothing", "ChangedKeyIsCompared", flaw{compare: nothing}},
	{"compares nothing", "ConcurrentIncrementsLoseNone", flaw{compare: nothing}},
	{"compares nothing", "OneOfManyCreatorsWins", flaw{compare: nothing}},
	{"takes the last of many conflicts for success", "ConflictsForEverEndWithNothingWritten", flaw{conflict: func(error) error { return nil }}},
	{"applies changes one by one", "SnapshotsNeverShowHalfATransaction", flaw{oneByOne: true}},
	{"reads keys one by one", "SnapshotsNeverShowHalfATransaction", flaw{readOneByOne: true}},
	{"applies before it asks for more", "ChangesOfAPlanThatAsksForMoreAreNotApplied", flaw{early: true}},
	{"forgets NotAfter", "ChangesPastNotAfterAreRefused", flaw{notAfter: func(int64, int64) int64 { return math.MaxInt64 }}},
	{"compares NotAfter with the time of the read", "NotAfterIsComparedWhenTheChangesAreApplied", flaw{notAfter: func(now, notAfter int64) int64 {
		if notAfter >= now {
			return math.MaxInt64
		}
		return notAfter
	}}},
	{"does not look at the context", "CancelledBeforeTheStartWritesNothing", flaw{deaf: true}},
	{"lists what is due at its time too late", "DueListsOldestFirstUpToTheTimeIncluded", flaw{due: func(all []engine.DueKey, before int64) []engine.DueKey {
		return slices.DeleteFunc(all, func(d engine.DueKey) bool { return d.At == before })
	}}},
	{"lists what is due in the order of keys", "DueListsOldestFirstUpToTheTimeIncluded", flaw{due: func(all []engine.DueKey, _ int64) []engine.DueKey {
		slices.SortFunc(all, func(a, b engine.DueKey) int { return a.Key.Compare(b.Key) })
		return all
	}}},
	{"takes a lost reply for success", "CommitWhoseReplyWasLostIsUnknown", flaw{ambiguous: func(error) error { return nil }}},
	{"takes a failed write for success", "CommitThatFailedAndWasNotKeptIsNeverAYes", flaw{ambiguous: func(error) error { return nil }}},
	{"says that nothing was written after a failed write", "CommitThatFailedButWasKeptIsNeverANo", flaw{ambiguous: func(error) error { return engine.ErrUnavailable }}},
	{"forgets the last commit at a restart", "RestartKeepsEverything", flaw{forgetful: true}},
	{"forgets the last commit at a restart", "RestartKeepsWhatATransactionWithoutChangesHasShown", flaw{forgetful: true}},
}

// flaw says what a flawed engine does wrong. The zero value does nothing wrong.
type flaw struct {
	compare      func(t *attempt, k state.Key) comparison
	conflict     func(error) error
	notAfter     func(now, notAfter int64) int64
	ambiguous    func(error) error
	due          func(all []engine.DueKey, before int64) []engine.DueKey
	oneByOne     bool
	readOneByOne bool
	early        bool
	deaf         bool
	forgetful    bool
}

type comparison uint8

const (
	versions comparison = iota
	data
	none
)

func writtenOnly(t *attempt, k state.Key) comparison {
	if slices.ContainsFunc(t.plan.Changes, func(c engine.Change) bool { return c.Key == k }) {
		return versions
	}
	return none
}

func lastRound(t *attempt, k state.Key) comparison {
	if slices.Contains(t.first, k) && len(t.snap.Keys) > len(t.first) {
		return none
	}
	return versions
}

func byData(*attempt, state.Key) comparison  { return data }
func nothing(*attempt, state.Key) comparison { return none }

// flawed decides optimistically on another engine, by its bare reads, so that
// every comparison is its own.
type flawed struct {
	engine.Engine
	flaw  flaw
	clock *clock.Manual
}

type attempt struct {
	first []state.Key // the keys of the first round
	snap  engine.Snapshot
	plan  engine.Plan
}

var errChanged = errors.New("changed meanwhile")

func (f *flawed) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	if f.flaw.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	err := engine.ErrConflict
	for range 200 {
		if err = f.try(ctx, keys, fn); !errors.Is(err, errChanged) {
			break
		}
		err = engine.ErrConflict
	}
	switch {
	case f.flaw.conflict != nil && errors.Is(err, engine.ErrConflict):
		return f.flaw.conflict(err)
	case f.flaw.ambiguous != nil && errors.Is(err, engine.ErrAmbiguous):
		return f.flaw.ambiguous(err)
	}
	return err
}

func (f *flawed) try(ctx context.Context, keys []state.Key, fn engine.Func) error {
	t := attempt{first: keys}
	for round := 1; ; round++ {
		snap, err := f.Read(ctx, keys)
		if err != nil {
			return err
		}
		plan, err := fn(snap)
		if err != nil {
			return err
		}
		t.snap, t.plan = snap, plan
		if len(plan.More) == 0 {
			return f.apply(ctx, t)
		}
		if f.flaw.early && len(plan.Changes) > 0 {
			if err := f.apply(ctx, t); err != nil {
				return err
			}
		}
		keys = append(keys[:len(keys):len(keys)], plan.More...)
		if err := engine.CheckRound(round); err != nil {
			return err
		}
	}
}

func (f *flawed) apply(ctx context.Context, t attempt) error {
	if f.flaw.notAfter != nil {
		t.plan.NotAfter = f.flaw.notAfter(t.snap.Now, t.plan.NotAfter)
	}
	plans := []engine.Plan{t.plan}
	if f.flaw.oneByOne {
		plans = nil
		for i := range t.plan.Changes {
			plans = append(plans, engine.Plan{Changes: t.plan.Changes[i : i+1], NotAfter: t.plan.NotAfter})
		}
	}
	for i, plan := range plans {
		err := f.Engine.Transact(ctx, t.snap.Keys, func(s engine.Snapshot) (engine.Plan, error) {
			if i == 0 && f.changed(&t, s) {
				return engine.Plan{}, errChanged
			}
			return plan, nil
		})
		if err != nil {
			return err
		}
		if f.flaw.oneByOne {
			inviteOthers()
		}
	}
	return nil
}

// inviteOthers lets other goroutines see what is half done.
func inviteOthers() {
	for range 100 {
		runtime.Gosched()
	}
}

func (f *flawed) changed(t *attempt, now engine.Snapshot) bool {
	for i, k := range t.snap.Keys {
		how := versions
		if f.flaw.compare != nil {
			how = f.flaw.compare(t, k)
		}
		was, is := t.snap.Items[i], now.Items[i]
		switch {
		case how == none:
		case (was == nil) != (is == nil):
			return true
		case was == nil:
		case how == data && string(was.Data) != string(is.Data), how == versions && was.Version != is.Version:
			return true
		}
	}
	return false
}

func (f *flawed) Read(ctx context.Context, keys []state.Key) (engine.Snapshot, error) {
	if !f.flaw.readOneByOne {
		return f.Engine.Read(ctx, keys)
	}
	var all engine.Snapshot
	for _, k := range keys {
		s, err := f.Engine.Read(ctx, []state.Key{k})
		if err != nil {
			return s, err
		}
		inviteOthers()
		all.Now, all.Keys, all.Items = s.Now, append(all.Keys, k), append(all.Items, s.Items...)
	}
	return all, nil
}

func (f *flawed) Due(ctx context.Context, scope string, index engine.Index, kind state.Kind, before int64, cursor string, limit int) ([]engine.DueKey, string, error) {
	all, next, err := f.Engine.Due(ctx, scope, index, kind, before, cursor, limit)
	if f.flaw.due != nil {
		all = f.flaw.due(all, before)
	}
	return all, next, err
}

// newFlawed makes a fixture with every hook over one memory engine. A restart
// is another handle on it; an engine that forgets loses its last commit then.
func newFlawed(w flaw) Fixture {
	c := clock.NewManual(time.UnixMilli(1_700_000_000_000))
	inner := memory.New(c)
	faulty := Faulty(inner)
	wrap := func() engine.Engine { return &flawed{Engine: faulty, flaw: w, clock: c} }
	if w.forgetful {
		wrap = func() engine.Engine { return newForgetful(c, inner) }
	}
	f := Fixture{Engine: wrap(), Clock: c}
	f.Second = func(*testing.T) engine.Engine { return &flawed{Engine: inner.Share(), flaw: w, clock: c} }
	f.Restart = func(*testing.T) engine.Engine {
		next := inner.Share()
		_ = inner.Close() // never fails
		inner, faulty = next, Faulty(next)
		return wrap()
	}
	f.Fail = func(_ *testing.T, fault Fault) {
		faulty.Next(map[Fault]Failure{FailedNotKept: LoseRequest, FailedButKept: LoseReply, ReplyLost: LoseReply}[fault])
	}
	f.Heal = func(*testing.T) engine.Engine { faulty.Heal(); return f.Engine }
	return f
}

// forgetful keeps each commit to itself until the next one: a crash loses the
// last.
type forgetful struct {
	engine.Engine
	durable engine.Engine
	held    chan struct{}
	last    []engine.Change
}

func newForgetful(c clock.Clock, durable engine.Engine) engine.Engine {
	f := &forgetful{Engine: memory.New(c), durable: durable, held: make(chan struct{}, 1)}
	for _, kind := range state.Kinds() {
		for _, s := range []string{scope, "a scope"} {
			found, _, err := durable.Scan(context.Background(), s, kind, "", "", 1000)
			if err != nil {
				panic(err)
			}
			for _, r := range found {
				if err := write(context.Background(), f.Engine, set(r.Key, r.Item)); err != nil {
					panic(err)
				}
			}
		}
	}
	return f
}

func (f *forgetful) Transact(ctx context.Context, keys []state.Key, fn engine.Func) error {
	f.held <- struct{}{}
	defer func() { <-f.held }()
	var changes []engine.Change
	err := f.Engine.Transact(ctx, keys, func(s engine.Snapshot) (engine.Plan, error) {
		plan, err := fn(s)
		changes = plan.Changes
		return plan, err
	})
	if err != nil || len(changes) == 0 {
		return err
	}
	if len(f.last) > 0 {
		if err := write(ctx, f.durable, f.last...); err != nil {
			return err
		}
	}
	f.last = changes
	return nil
}

// TestFlawedEngine runs the suite on the flawed engine that the environment
// names; without one, on the wrapper itself, which has no flaw.
func TestFlawedEngine(t *testing.T) {
	t.Parallel()
	var w flaw
	if name := os.Getenv("FLAW"); name != "" {
		for _, f := range flaws {
			if f.name == name {
				w = f.flaw
			}
		}
	}
	Run(t, Factory{New: func(*testing.T) Fixture { return newFlawed(w) }})
}

// TestEveryFlawIsCaughtByItsClause runs the suite in another process, where it
// may fail, and reads which clause did.
func TestEveryFlawIsCaughtByItsClause(t *testing.T) {
	t.Parallel()
	for _, f := range flaws {
		t.Run(f.name+"/"+f.clause, func(t *testing.T) {
			t.Parallel()
			run := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestFlawedEngine$/^"+f.clause+"$", "-test.v", "-test.timeout", "30s")
			run.Env = append(os.Environ(), "FLAW="+f.name)
			said, err := run.CombinedOutput()
			if err == nil || !strings.Contains(string(said), "--- FAIL: TestFlawedEngine/"+f.clause) {
				t.Errorf("an engine that %s passed %s:\n%s", f.name, f.clause, said)
			}
		})
	}
}
