package memory_test

import (
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/engine/enginetest"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
)

func TestEngine(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.Factory{
		New: func(*testing.T) enginetest.Fixture {
			c := clock.NewManual(time.UnixMilli(1_700_000_000_000))
			e := memory.New(c)
			return enginetest.Fixture{
				Engine: e,
				Clock:  c,
				Second: func(*testing.T) engine.Engine { return e.Share() },
			}
		},
		Exceptions: map[string]string{
			"RestartKeepsEverything":                             "the memory engine forgets, and says so",
			"RestartKeepsWhatATransactionWithoutChangesHasShown": "the memory engine forgets, and says so",
			"CommitThatFailedAndWasNotKeptIsNeverAYes":           "nothing in memory can fail; enginetest.Faulty is tested by itself",
			"CommitThatFailedButWasKeptIsNeverANo":               "nothing in memory can fail; enginetest.Faulty is tested by itself",
			"CommitWhoseReplyWasLostIsUnknown":                   "nothing in memory can fail; enginetest.Faulty is tested by itself",
		},
	})
}

func TestWithoutAClockItTellsTheTimeOfTheMachine(t *testing.T) {
	t.Parallel()
	before := time.Now().UnixMilli()
	now, err := memory.New(nil).Share().Now(t.Context())
	if after := time.Now().UnixMilli(); err != nil || now < before || now > after {
		t.Fatalf("%d, %v; want %d to %d", now, err, before, after)
	}
}
