package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

func marker(id string, expires int64) state.Claim {
	return state.Claim{
		Key:   state.Key{Scope: "default", Kind: state.KindMarker, ID: id},
		Owner: "o", Token: state.Token{1}, State: state.Settled, Expires: expires,
	}
}

func TestTheSweeperDeletesWhatIsOverForLongEnoughAndNothingElse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 200 {
		must(t, f.Store, marker(fmt.Sprint("short", i), f.now()+1000))
	}
	must(t, f.Store, marker("long", f.now()+3_600_000))
	must(t, f.Store, claim("pending", 1))
	f.clock.Advance(time.Second + time.Minute)
	if swept, err := f.Sweep(t.Context()); err != nil || swept.Removed != 0 {
		t.Fatalf("swept what has only just ended: %+v %v", swept, err)
	}
	f.clock.Advance(10 * time.Minute)
	swept, err := f.Sweep(t.Context())
	if err != nil || swept.Removed != 200 || swept.Failed != 0 {
		t.Fatalf("%+v %v", swept, err)
	}
	if f.item(t, marker("long", 0).Key) == nil || f.item(t, opKey("pending")) == nil {
		t.Fatal("swept what is live")
	}
	f.clock.Advance(1000 * time.Hour)
	if _, err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.item(t, opKey("pending")) == nil {
		t.Fatal("swept a pending operation")
	}
}

func TestAReceiptBecomesATombstoneThatStillStandsInTheWay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	must(t, f.Store, claim("a", 1))
	end := f.now() + 3_600_000
	must(t, f.Store, state.Settle{Key: opKey("a"), Token: state.Token{1}, Body: make([]byte, 5000), Retain: f.now() + 60_000, Expires: end})
	f.clock.Advance(2 * time.Minute)
	if swept, err := f.Sweep(t.Context()); err != nil || swept.Removed != 1 {
		t.Fatalf("%+v %v", swept, err)
	}
	if item := f.item(t, opKey("a")); len(item.Data) > 100 {
		t.Fatalf("the tombstone has %d bytes", len(item.Data))
	}
	refused(t, f.Store, state.Exists, claim("a", 2))
	f.clock.Advance(time.Hour)
	must(t, f.Store, claim("a", 3))
}

func TestAtTheCapWhatIsOverIsSweptBeforeAClaimIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	err := f.ChangeScope(t.Context(), "default", func(body *state.Scope, _ int64) error {
		body.Caps.Live, body.Caps.OwnerLive = 10, 10
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		must(t, f.Store, marker(fmt.Sprint(i), f.now()+1000))
	}
	refused(t, f.Store, state.Full, marker("more", f.now()+1000))
	f.clock.Advance(10 * time.Minute)
	must(t, f.Store, marker("more", f.now()+1000))
}

func TestLeasesThatAreOverAreHandedOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var got []string
	fail := true
	f.HandleLeases(state.KindHold, func(_ context.Context, key state.Key, rec *state.Record) error {
		if fail {
			fail = false
			return errors.New("not now")
		}
		got = append(got, key.ID)
		out, err := f.Do(t.Context(), batch(state.Settle{Key: key, Token: rec.Token, IfLeaseOver: true, Expires: f.now() + 1000}))
		if err == nil && !out.Applied {
			err = errors.New("refused")
		}
		return err
	})
	for i, lease := range []int64{1000, 2000, 3_600_000} {
		c := claim(fmt.Sprint(i), 1)
		c.Key.Kind, c.Lease = state.KindHold, f.now()+lease
		must(t, f.Store, c)
	}
	f.clock.Advance(time.Minute)
	swept, err := f.Sweep(t.Context())
	if err != nil || swept.Leases != 1 || swept.Failed != 1 {
		t.Fatalf("%+v %v", swept, err)
	}
	if swept, err = f.Sweep(t.Context()); err != nil || swept.Leases != 1 {
		t.Fatalf("%+v %v", swept, err)
	}
	if len(got) != 2 {
		t.Fatalf("handed on %v", got)
	}
}
