package state_test

import (
	"testing"

	"github.com/counterfoil/counterfoil/state"
)

// TestSweep: a record goes when it was over for long enough, and not a
// millisecond earlier, so that it is answered by its name until then.
func TestSweep(t *testing.T) {
	t.Parallel()
	const end = start + minute
	settled := func(retain, expires int64) func(r *rig, k state.Key) {
		return func(r *rig, k state.Key) {
			r.applies(change(claim(k), func(o *state.Claim) { o.Lease = start + second }))
			r.applies(state.Settle{Key: k, Token: state.Token{1}, Body: []byte("receipt"), Retain: retain, Expires: expires})
		}
	}
	for name, c := range map[string]struct {
		key      state.Key
		make     func(r *rig, k state.Key)
		due      int64 // 0: never
		tomb     bool
		goneThen int64 // when the tombstone goes
	}{
		"pending, for ever":                   {op("x"), func(r *rig, k state.Key) { r.applies(claim(k)) }, 0, false, 0},
		"pending spend":                       {key(state.KindSpend, "x"), func(r *rig, k state.Key) { expiring(r, k) }, end + state.KeepPast, false, 0},
		"pending hold: remembered for a day":  {hold("x"), func(r *rig, k state.Key) { expiring(r, k) }, end + state.HoldKeep, false, 0},
		"a consumed permit":                   {key(state.KindMarker, "x"), func(r *rig, k state.Key) { expiring(r, k) }, end + state.KeepPast, false, 0},
		"settled, for ever":                   {op("x"), settled(0, 0), 0, false, 0},
		"settled without a tombstone":         {op("x"), settled(0, end), end + state.KeepPast, false, 0},
		"settled with a tombstone of no life": {op("x"), settled(end, end), end + state.KeepPast, false, 0},
		"receipt, then tombstone":             {op("x"), settled(end, end+day), end, true, end + day + state.KeepPast},
		"receipt, then tombstone for ever":    {op("x"), settled(end, 0), end, true, 0},
		"void":                                {op("x"), func(r *rig, k state.Key) { r.applies(claim(k)); r.applies(state.Drop{Key: k, Token: state.Token{1}}) }, start + state.VoidKeep + state.KeepPast, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c.make(r, c.key)
			rec := r.record(c.key)
			if got := rec.ExpiryIndex(c.key.Kind); got != c.due {
				t.Fatalf("due at %d, want %d", got-start, c.due-start)
			}
			if c.due == 0 {
				r.Now = start + 1000*day
				if out := r.applies(state.Sweep{Key: c.key}); !out.Skipped[0] || r.record(c.key) == nil {
					t.Error("it was swept")
				}
				return
			}
			r.Now = c.due - 1
			if out := r.applies(state.Sweep{Key: c.key}); !out.Skipped[0] || r.record(c.key).Version != rec.Version {
				t.Error("it was swept too early")
			}
			r.Now = c.due
			if out := r.applies(state.Sweep{Key: c.key}); out.Skipped[0] {
				t.Error("it was not swept")
			}
			got := r.record(c.key)
			if !c.tomb {
				if got != nil {
					t.Errorf("%+v is left", got)
				}
				r.recount()
				return
			}
			if !got.Tomb || got.State != state.Settled || got.Body != nil || got.Result != nil || got.Owner != "" || got.OwnerTag != state.TagOwner("ann") ||
				!got.Token.IsZero() || got.Expires != rec.Expires || got.Created != rec.Created || got.Fence != rec.Fence {
				t.Errorf("tombstone %+v", got)
			}
			if got.ExpiryIndex(c.key.Kind) != c.goneThen {
				t.Errorf("the tombstone is due at %d, want %d", got.ExpiryIndex(c.key.Kind), c.goneThen)
			}
			r.recount()
		})
	}
}

// TestSweepDeletesWhatIsLongOver, also what missed its time as a tombstone.
func TestSweepDeletesWhatIsLongOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(claim(op("x")))
	r.applies(state.Settle{Key: op("x"), Token: state.Token{1}, Body: []byte("receipt"), Retain: start + minute, Expires: start + hour})
	r.Now = start + hour + state.KeepPast - 1
	r.applies(state.Sweep{Key: op("x")})
	if !r.record(op("x")).Tomb {
		t.Error("not a tombstone")
	}
	r.applies(claim(op("y")))
	r.applies(state.Settle{Key: op("y"), Token: state.Token{1}, Body: []byte("receipt"), Retain: r.Now + minute, Expires: r.Now + hour})
	r.Now += hour + state.KeepPast
	r.applies(state.Sweep{Key: op("x")}, state.Sweep{Key: op("y")}, state.Sweep{Key: op("never")})
	if r.record(op("x")) != nil || r.record(op("y")) != nil {
		t.Error("they are still there")
	}
	r.recount()
}

func TestSweepSkipsWhatHasChangedOrIsDamaged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	expiring(r, hold("renewed"))
	expiring(r, hold("damaged"))
	expiring(r, hold("over"))
	r.applies(state.Update{Key: hold("renewed"), Token: state.Token{1}, Expires: start + 100*day})
	r.Damage(hold("damaged"))
	r.Now += minute + state.HoldKeep
	out := r.applies(state.Sweep{Key: hold("renewed")}, state.Sweep{Key: hold("damaged")}, state.Sweep{Key: hold("over")})
	if !out.Skipped[0] || !out.Skipped[1] || out.Skipped[2] || r.Records[hold("damaged")] == nil || r.record(hold("renewed")) == nil || r.record(hold("over")) != nil {
		t.Errorf("skipped %v", out.Skipped)
	}
}

// TestKeepPast: the sum that the design names, so that no small step of a clock
// makes a record free.
func TestKeepPast(t *testing.T) {
	t.Parallel()
	if state.KeepPast < state.Skew+state.Tolerance+3*minute || state.HoldKeep < state.KeepPast || state.VoidKeep < state.KeepPast {
		t.Error("records are not kept long enough")
	}
}

func TestLeaseIndexIsOfPendingRecordsOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(change(claim(op("x")), func(o *state.Claim) { o.Lease = start + minute }))
	if got := r.Records[op("x")].Lease; got != start+minute {
		t.Errorf("lease %d", got)
	}
	r.applies(state.Settle{Key: op("x"), Token: state.Token{1}})
	if got := r.Records[op("x")].Lease; got != 0 {
		t.Errorf("a settled record has lease %d", got)
	}
}
