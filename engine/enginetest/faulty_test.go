package enginetest

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
)

func TestFaultyEngineWithoutFailuresIsTheEngineItself(t *testing.T) {
	t.Parallel()
	Run(t, Factory{
		New: func(*testing.T) Fixture {
			return Fixture{Engine: Faulty(memory.New(clock.System{}))}
		},
		Exceptions: map[string]string{
			"NotAfterIsComparedWhenTheChangesAreApplied":         "runs on the machine's clock",
			"NowFollowsTheClock":                                 "runs on the machine's clock",
			"TwoHandlesLoseNoIncrement":                          "the wrapper has one handle",
			"SecondHandleSeesWhatTheFirstWrote":                  "the wrapper has one handle",
			"ClosingOneHandleLeavesTheOther":                     "the wrapper has one handle",
			"RestartKeepsEverything":                             "the memory engine forgets",
			"RestartKeepsWhatATransactionWithoutChangesHasShown": "the memory engine forgets",
			"CommitThatFailedAndWasNotKeptIsNeverAYes":           "see TestFaultyEngineMeetsTheFaultClauses",
			"CommitThatFailedButWasKeptIsNeverANo":               "see TestFaultyEngineMeetsTheFaultClauses",
			"CommitWhoseReplyWasLostIsUnknown":                   "see TestFaultyEngineMeetsTheFaultClauses",
		},
	})
}

func TestFaultyEngineMeetsTheFaultClauses(t *testing.T) {
	t.Parallel()
	for fault, failures := range map[Fault][]Failure{
		FailedNotKept: {LoseRequest, BreakBefore, Refuse, Delay},
		FailedButKept: {LoseReply, BreakAfter},
		ReplyLost:     {LoseReply},
	} {
		for _, failure := range failures {
			e := Faulty(memory.New(clock.System{}))
			faulted(fault)(t, Fixture{
				Engine: e,
				Fail:   func(*testing.T, Fault) { e.Next(failure) },
				Heal:   func(*testing.T) engine.Engine { e.Heal(); return e },
			})
		}
	}
}

func TestFaultyEngineEndsEachCallAsPlanned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		failure Failure
		result  error
		written bool
		broken  bool
	}{
		{None, nil, true, false},
		{Refuse, engine.ErrUnavailable, false, false},
		{Contend, engine.ErrConflict, false, false},
		{LoseRequest, engine.ErrAmbiguous, false, false},
		{LoseReply, engine.ErrAmbiguous, true, false},
		{Delay, engine.ErrAmbiguous, false, false},
		{BreakBefore, engine.ErrBroken, false, true},
		{BreakAfter, engine.ErrBroken, true, true},
	} {
		e := Faulty(memory.New(clock.System{}))
		e.Next(None, c.failure)
		mustWrite(t, e, set(key("before"), item("x")))
		if err := write(t.Context(), e, set(key("k"), item("x"))); !errors.Is(err, c.result) {
			t.Errorf("failure %d gave %v, want %v", c.failure, err, c.result)
		}
		if _, err := e.Read(t.Context(), keys(1)); errors.Is(err, engine.ErrBroken) != c.broken {
			t.Errorf("after failure %d Read gave %v", c.failure, err)
		}
		if err := write(t.Context(), e, set(key("after"), item("x"))); errors.Is(err, engine.ErrBroken) != c.broken {
			t.Errorf("after failure %d a commit gave %v", c.failure, err)
		}
		e.Heal()
		if written := read(t, e, key("k"))[0] != nil; written != c.written {
			t.Errorf("failure %d: written is %v, want %v", c.failure, written, c.written)
		}
	}
}

func TestDelayedCommitIsDeliveredIfAndOnlyIfItsReadSetIsUnchanged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		between func(e engine.Engine)
		applied int
	}{
		{"nothing changed", func(engine.Engine) {}, 1},
		{"a key that it reads was written", func(e engine.Engine) { mustWrite(t, e, set(key("k"), item("other"))) }, 0},
	} {
		e := Faulty(memory.New(clock.System{}))
		e.Next(Delay)
		late := item("late")
		if err := write(t.Context(), e, set(key("k"), late)); !errors.Is(err, engine.ErrAmbiguous) {
			t.Fatal(err)
		}
		want(t, e, key("k"), nil)
		c.between(e)
		if n, err := e.Deliver(t.Context()); err != nil || n != c.applied {
			t.Errorf("%s: delivered %d (%v), want %d", c.name, n, err, c.applied)
		}
		if there := same(read(t, e, key("k"))[0], late); there != (c.applied == 1) {
			t.Errorf("%s: the late commit is there: %v", c.name, there)
		}
	}
}

func TestHeldScopeWaitsAndOthersDoNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := Faulty(memory.New(clock.System{}))
		release := e.Hold(scope)
		done := false
		go func() {
			if err := write(t.Context(), e, set(key("k"), item("x"))); err != nil {
				t.Error(err)
			}
			done = true
		}()
		other := key("k")
		other.Scope = "another"
		mustWrite(t, e, set(other, item("x")))
		synctest.Wait()
		if done {
			t.Fatal("a transaction of the held scope went through")
		}
		release()
		synctest.Wait()
		if !done {
			t.Fatal("the transaction still waits after the release")
		}
	})
}
