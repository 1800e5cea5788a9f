package counterfoil_test

import (
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/internal/callertest"
	"github.com/counterfoil/counterfoil/internal/storetest"
)

// place is where the suite of callers runs on the library.
type place struct{ *desk }

func (p place) As(owner string) counterfoil.Caller { return p.desk.As(scope, owner) }

func (p place) Operator(owner string) counterfoil.Caller {
	return p.Acting(counterfoil.Identity{Scope: scope, Owner: owner, Name: "olga"})
}

func (p place) Define(name string, limit uint64, parent string) { p.define(name, limit, parent) }

func (p place) Used(name string) (spent, held uint64) {
	u := p.used(name)
	return u.spent, u.held
}

func (p place) CloseBudgets(prefix string) { p.close(prefix) }

func (p place) Advance(d time.Duration) { p.Clock.Advance(d) }

func TestTheLibraryIsACaller(t *testing.T) {
	t.Parallel()
	callertest.Run(t, func(t *testing.T) callertest.Place {
		d := &desk{Fixture: storetest.Memory(t), t: t}
		d.keyed()
		return place{d}
	})
}
