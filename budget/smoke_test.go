package budget_test

import (
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/budget"
)

func TestSmoke(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		r.define("acme", 100, "")
		r.define("acme/search", 60, "acme")
		s := r.mustSpend("s1", "acme/search", 10)
		r.stands("acme", 10, 0)
		h := r.mustHold("h1", time.Minute, "acme/search", 50)
		r.stands("acme", 10, 50)
		_, err := r.spend("s2", "acme/search", 1)
		r.refused(err, budget.ErrExceeded)
		c, err := r.capture(h.ID, "acme/search", 20)
		r.must(err)
		t.Logf("%+v", c)
		r.stands("acme/search", 30, 0)
		r.must(r.refund(s.ID))
		r.stands("acme", 20, 0)
		if r.close("acme") != 2 {
			t.Fatal("close")
		}
	})
}
