// Package enginetest says what an engine must do: [Run] is the one suite that
// every engine passes, each clause of the contract a test of its own name.
//
// An engine's test calls Run with a [Factory] of a few lines:
//
//	func TestEngine(t *testing.T) {
//		enginetest.Run(t, enginetest.Factory{New: func(t *testing.T) enginetest.Fixture { … }})
//	}
//
// [Faulty] wraps any engine so that its commits fail on demand, for the tests
// of what stands on an engine.
package enginetest

import (
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/clock"
)

// Factory makes the engines that the suite works on. Tests run in parallel,
// each on an engine of its own.
type Factory struct {
	// New makes an engine without records; what it holds is released by the
	// cleanup of t.
	New func(t *testing.T) Fixture
	// Exceptions maps the name of a clause that the engine cannot show to the
	// reason, which is printed. A clause whose hooks are missing fails unless it
	// is named here.
	Exceptions map[string]string
}

// Fixture is one engine and what the suite can do to it.
type Fixture struct {
	Engine engine.Engine
	// Clock moves the engine's clock. Nil: the clock is a server's.
	Clock *clock.Manual
	// Restart ends the engine as a crash does, with all that is not durable
	// lost, and opens it again.
	Restart func(t *testing.T) engine.Engine
	// Second opens one more handle on the same records, as another process
	// would.
	Second func(t *testing.T) engine.Engine
	// Fail makes the next commit of Engine meet the fault.
	Fail func(t *testing.T, fault Fault)
	// Heal ends the fault and gives an engine that works on the same records,
	// reopened if it has to be.
	Heal func(t *testing.T) engine.Engine
}

// Fault is what the next commit meets. They come in pairs: an error tells
// nothing about what was kept.
type Fault string

// The faults.
const (
	FailedNotKept Fault = "failed and not kept" // the write reports an error and nothing of it stays
	FailedButKept Fault = "failed but kept"     // the write reports an error and all of it stays
	ReplyLost     Fault = "reply lost"          // the write took effect and nobody said so
)

// clause is one sentence of the contract. It fails without the hooks that it
// needs.
type clause struct {
	name  string
	needs func(Fixture) bool
	test  func(*testing.T, Fixture)
}

func clauses() []clause {
	return concat(transactClauses(), readSetClauses(), readClauses(), dueClauses(), scanClauses(), scopesClauses(),
		concurrencyClauses(), restartClauses(), faultClauses(), modelClauses(), closeClauses())
}

func concat(groups ...[]clause) []clause {
	var all []clause
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// Run tests every clause of the contract in [engine.Engine] as a subtest.
func Run(t *testing.T, f Factory) {
	t.Helper()
	known := map[string]bool{}
	for _, c := range clauses() {
		known[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if reason, ok := f.Exceptions[c.name]; ok {
				t.Skipf("exception: %s", reason)
			}
			fixture := f.New(t)
			if c.needs != nil && !c.needs(fixture) {
				t.Fatalf("the factory has no hook for %s: add it, or name the exception and its reason", c.name)
			}
			c.test(t, fixture)
		})
	}
	for name := range f.Exceptions {
		if !known[name] {
			t.Errorf("exception for %q: there is no such clause", name)
		}
	}
}
