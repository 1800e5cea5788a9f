package enginetest

import (
	"errors"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
)

func faultClauses() []clause {
	return []clause{
		{"CommitThatFailedAndWasNotKeptIsNeverAYes", hasFaults, faulted(FailedNotKept)},
		{"CommitThatFailedButWasKeptIsNeverANo", hasFaults, faulted(FailedButKept)},
		{"CommitWhoseReplyWasLostIsUnknown", hasFaults, faulted(ReplyLost)},
	}
}

func hasFaults(f Fixture) bool { return f.Fail != nil && f.Heal != nil }

// faulted lets one commit of several changes meet the fault, heals the engine
// and checks that the changes are there as a whole or not at all, as the fault
// says, and that the answer did not say otherwise.
func faulted(fault Fault) func(*testing.T, Fixture) {
	return func(t *testing.T, f Fixture) {
		e := f.Engine
		for range 3 {
			before, after := due(10, 20), due(30, 0)
			mustWrite(t, e, set(key("changed"), before), set(key("deleted"), before))
			mustWrite(t, e, set(key("created"), nil))
			f.Fail(t, fault)
			err := write(t.Context(), e, set(key("changed"), after), set(key("deleted"), nil), set(key("created"), after))
			unknown := errors.Is(err, engine.ErrAmbiguous) || errors.Is(err, engine.ErrBroken)
			switch {
			case err == nil:
				t.Fatalf("%s: answered yes", fault)
			case !unknown && fault != FailedNotKept:
				t.Fatalf("%s: answered %v, which says that nothing was written", fault, err)
			case !unknown && !errors.Is(err, engine.ErrUnavailable):
				t.Fatalf("%s: answered %v, want ErrAmbiguous, ErrBroken or ErrUnavailable", fault, err)
			}
			if e = f.Heal(t); fault == FailedNotKept {
				want(t, e, key("changed"), before)
				want(t, e, key("deleted"), before)
				want(t, e, key("created"), nil)
				wantDue(t, e, engine.ByExpiry, far, at(10, "changed"), at(10, "deleted"))
				continue
			}
			want(t, e, key("changed"), after)
			want(t, e, key("deleted"), nil)
			want(t, e, key("created"), after)
			wantDue(t, e, engine.ByExpiry, far, at(30, "changed"), at(30, "created"))
		}
	}
}
