package operation_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

func TestAReceiptIsReplayedByteForByte(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		want := operation.Receipt{
			Status: 201, ContentType: "application/json", JSON: true, Body: []byte(`{"amount": 1.50, "id": 12345678901234567890}`),
			Headers: map[string][]string{"Location": {"/orders/1"}, "Link": {"<a>", "<b>"}},
		}
		s.mustComplete("ann", c, want)
		for range 2 {
			got, err := s.begin("ann", "order-1")
			if err != nil || got.Answer != operation.Replay {
				s.t.Fatalf("begin again: %+v, %v, want replay", got, err)
			}
			r := got.Receipt
			if r.Status != want.Status || r.ContentType != want.ContentType || !r.JSON || string(r.Body) != string(want.Body) ||
				len(r.Headers["Link"]) != 2 || r.Headers["Link"][1] != "<b>" || r.Headers["Location"][0] != "/orders/1" {
				s.t.Fatalf("the receipt came back as %+v", r)
			}
			r.Body[0] = 'X' // what a caller does with its copy changes nothing
		}
	})
}

func TestAReplayIsOwnerBound(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		s.mustComplete("ann", c, receipt("ann's"))
		other := s.mustExecute("bob", "order-1")
		if other.ID == c.ID {
			s.t.Fatal("two owners' operations have one id")
		}
		_, err := s.complete("bob", c, receipt("bob's"))
		s.wantError("complete of another owner's operation", err, operation.ErrNotFound)
		_, err = s.Get(s.t.Context(), operation.GetParams{Scope: scope, Owner: "bob", ID: c.ID})
		s.wantError("get of another owner's operation", err, operation.ErrNotFound)
	})
}

func TestReuseForAnotherRequestIsRefusedAndRevealsNothing(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		p := params("ann", "order-1")
		c := s.mustExecute("ann", "order-1")
		p.Fingerprint = fingerprint(2)
		for _, stage := range []string{"pending", "settled"} {
			got, err := s.Begin(s.t.Context(), p)
			s.wantError(stage, err, operation.ErrMismatch)
			if got.Answer != "" || got.ID != "" || got.Receipt != nil || !got.CreatedAt.IsZero() {
				s.t.Fatalf("%s: the mismatch reveals %+v", stage, got)
			}
			if stage == "pending" {
				s.mustComplete("ann", c, receipt("done"))
			}
		}
	})
}

func TestACrashAfterTheIntentNeverRunsItAgain(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		_, err := s.begin("ann", "order-1")
		var busy *operation.InFlightError
		if !errors.As(err, &busy) || busy.RetryAfter != operation.DefaultLease || !busy.LeaseUntil.Equal(c.LeaseUntil) {
			s.t.Fatalf("begin while the lease is alive: %v, want in flight for the whole lease", err)
		}
		s.restart(operation.Options{})
		s.Clock.Advance(operation.DefaultLease)
		for range 3 {
			_, err = s.begin("ann", "order-1")
			s.wantError("begin after the crash", err, operation.ErrOutcomeUnknown)
			s.Clock.Advance(400 * day)
			if _, err := s.Sweep(s.t.Context()); err != nil {
				s.t.Fatalf("sweep: %v", err)
			}
			s.restart(operation.Options{})
		}
	})
}

func TestAStoreThatCannotAnswerFailsClosed(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		if err := s.Store.Close(); err != nil {
			s.t.Fatal(err)
		}
		_, err := s.begin("ann", "order-1")
		s.wantError("begin on a closed store", err, state.ErrUnavailable)
		s.restartClosed()
		s.mustExecute("ann", "order-1")
	})
}

// restartClosed opens the store again that a test has closed itself.
func (s *subject) restartClosed() {
	s.t.Helper()
	s.Reopen()
	s.Operations = operations(s.t, s.Store, operation.Options{})
}

func TestAProvenAbortAllowsARetry(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		p := params("ann", "order-1")
		p.Token = state.Token{1}
		first, err := s.Begin(s.t.Context(), p)
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.abort(first); err != nil {
			s.t.Fatalf("abort: %v", err)
		}
		if again, err := s.abort(first); err != nil || !again.Repeated {
			s.t.Fatalf("the abort sent again: %+v, %v, want repeated", again, err)
		}
		if op := s.get(first.ID); op.State != operation.Aborted || op.Key != "order-1" {
			s.t.Fatalf("after the abort: %+v", op)
		}
		_, err = s.Begin(s.t.Context(), p)
		s.wantError("the aborted claim sent again", err, operation.ErrAborted)
		_, err = s.complete("ann", first, receipt("late"))
		s.wantError("complete after abort", err, operation.ErrAborted)
		second := s.mustExecute("ann", "order-1")
		if second.Fence <= first.Fence {
			s.t.Fatalf("the fence went from %d to %d", first.Fence, second.Fence)
		}
		_, err = s.abort(first)
		s.wantError("abort of a claim that another holds", err, operation.ErrNotHolder)
	})
}

func TestTheFenceRisesEvenIfTheClockStepsBack(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		last := uint64(0)
		for range 4 {
			c := s.mustExecute("ann", "order-1")
			if c.Fence <= last {
				s.t.Fatalf("the fence went from %d to %d", last, c.Fence)
			}
			last = c.Fence
			if _, err := s.abort(c); err != nil {
				s.t.Fatal(err)
			}
			s.Clock.Step(-time.Second)
		}
	})
}

func TestRetentionStartsWhenExecutionFinishes(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		s.Clock.Advance(3 * day) // a long execution, its lease long over
		done := s.mustComplete("ann", c, receipt("done"))
		if want := s.Clock.Now().Add(day); !done.ReceiptExpiresAt.Equal(want) {
			s.t.Fatalf("the receipt expires at %s, want %s", done.ReceiptExpiresAt, want)
		}
		s.Clock.Advance(day - time.Millisecond)
		if got, err := s.begin("ann", "order-1"); err != nil || got.Answer != operation.Replay {
			s.t.Fatalf("just before the end of retention: %+v, %v, want replay", got, err)
		}
		s.Clock.Advance(time.Millisecond)
		p := params("ann", "order-1")
		p.Fingerprint = fingerprint(9)
		_, err := s.Begin(s.t.Context(), p)
		s.wantError("after retention, whatever the fingerprint", err, operation.ErrKeyExpired)
	})
}

func TestATombstoneKeepsTheKeyUntilItEnds(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		s.mustComplete("ann", c, receipt("done"))
		s.Clock.Advance(day)
		for range 2 { // before and after the sweeper
			_, err := s.begin("ann", "order-1")
			s.wantError("begin on a tombstone", err, operation.ErrKeyExpired)
			if op := s.get(c.ID); op.State != operation.Expired || op.Receipt != nil {
				s.t.Fatalf("a tombstone is told as %+v", op)
			}
			if _, err := s.Sweep(s.t.Context()); err != nil {
				s.t.Fatal(err)
			}
		}
		_, err := s.complete("ann", c, receipt("again"))
		s.wantError("complete on a tombstone", err, operation.ErrKeyExpired)
		s.Clock.Advance(30*day - time.Millisecond)
		_, err = s.begin("ann", "order-1")
		s.wantError("begin just before the tombstone ends", err, operation.ErrKeyExpired)
		s.Clock.Advance(time.Millisecond)
		s.mustExecute("ann", "order-1")
	})
}

func TestWithoutTombstonesAnExpiredKeyCanBeUsedAnew(t *testing.T) {
	each(t, operation.Options{NoTombstones: true}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		s.mustComplete("ann", c, receipt("done"))
		s.Clock.Advance(day - time.Millisecond)
		if got, err := s.begin("ann", "order-1"); err != nil || got.Answer != operation.Replay {
			s.t.Fatalf("just before the end of retention: %+v, %v, want replay", got, err)
		}
		s.Clock.Advance(time.Millisecond)
		again := s.mustExecute("ann", "order-1")
		if again.Fence <= c.Fence {
			s.t.Fatal("the fence did not rise")
		}
	})
}

func TestCleaningAnExpiredReceiptNeverDeletesASurvivingIntent(t *testing.T) {
	each(t, operation.Options{NoTombstones: true}, func(s *subject) {
		s.mustComplete("ann", s.mustExecute("ann", "done"), receipt("done"))
		s.mustExecute("ann", "left")
		s.mustComplete("ann", s.mustExecute("ann", "anew"), receipt("done"))
		s.Clock.Advance(day)
		s.mustExecute("ann", "anew") // an intent in the place of an expired receipt
		s.Clock.Advance(day)
		swept, err := s.Sweep(s.t.Context())
		if err != nil || swept.Removed != 1 {
			s.t.Fatalf("the sweep removed %d records (%v), want the receipt alone", swept.Removed, err)
		}
		for _, key := range []string{"left", "anew"} {
			_, err := s.begin("ann", key)
			s.wantError("begin of the intent "+key, err, operation.ErrOutcomeUnknown)
		}
	})
}

func TestKeysThatAreEmptyOrTooLongAreRefused(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		long := make([]byte, 257)
		for i := range long {
			long[i] = 'k'
		}
		for _, bad := range []struct{ owner, key string }{
			{"ann", ""}, {"ann", string(long)}, {"ann", "a\nb"}, {"ann", "\xff"}, {"", "k"}, {string(long), "k"},
		} {
			_, err := s.begin(bad.owner, bad.key)
			s.wantError("begin", err, operation.ErrInvalid)
		}
		s.mustExecute("ann", string(long[:256]))
	})
}

func TestCapacityCountsDurableIntents(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		s.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 3, 3 })
		first := s.mustExecute("ann", "1")
		s.mustExecute("ann", "2")
		s.mustExecute("ann", "3")
		s.restart(operation.Options{})
		s.Clock.Advance(400 * day) // abandoned intents keep their places
		_, err := s.begin("ann", "4")
		s.wantError("begin above the cap", err, state.ErrFull)
		_, err = s.begin("ann", "2")
		s.wantError("an abandoned intent at the cap", err, operation.ErrOutcomeUnknown)
		if _, err := s.abort(first); err != nil {
			s.t.Fatal(err)
		}
		s.mustExecute("ann", "4")
	})
}

func TestOneOwnerCannotExhaustTheStore(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		s.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 4, 2 })
		s.mustExecute("ann", "1")
		s.mustExecute("ann", "2")
		_, err := s.begin("ann", "3")
		s.wantError("begin above the owner's share", err, state.ErrOwnerFull)
		s.mustExecute("bob", "1")
	})
}

func TestNeitherTwoStoresNorManyCallersOverbook(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		const places = 5
		s.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = places, places })
		stores := []*operation.Operations{s.Operations, operations(s.t, s.Second(), operation.Options{})}
		var mu sync.Mutex
		var granted, full int
		var callers sync.WaitGroup
		for n := range 16 {
			callers.Go(func() {
				p := params("ann", string(rune('a'+n)))
				_, err := stores[n%2].Begin(context.Background(), p)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					granted++
				case errors.Is(err, state.ErrFull) || errors.Is(err, state.ErrOwnerFull):
					full++
				default:
					s.t.Errorf("begin: %v", err)
				}
			})
		}
		callers.Wait()
		if granted != places || full != 16-places {
			s.t.Fatalf("%d granted, %d refused, want %d and %d", granted, full, places, 16-places)
		}
	})
}

func TestOfManyCallersOneWins(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		stores := []*operation.Operations{s.Operations, operations(s.t, s.Second(), operation.Options{})}
		var mu sync.Mutex
		winners := 0
		var callers sync.WaitGroup
		for n := range 8 {
			callers.Go(func() {
				_, err := stores[n%2].Begin(context.Background(), params("ann", "order-1"))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					winners++
				} else if !errors.Is(err, operation.ErrInFlight) {
					s.t.Errorf("begin: %v", err)
				}
			})
		}
		callers.Wait()
		if winners != 1 {
			s.t.Fatalf("%d callers were told to execute", winners)
		}
	})
}

func TestADamagedRecordIsNeitherPrunedNorRunAgainAndKeepsItsPlace(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		s.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 1, 1 })
		s.mustComplete("ann", s.mustExecute("ann", "order-1"), receipt("done"))
		s.Damage(recordKey(s.t, "ann", "order-1"))
		for range 2 {
			_, err := s.begin("ann", "order-1")
			s.wantError("begin on a damaged record", err, state.ErrCorrupt)
			_, err = s.begin("ann", "order-2")
			s.wantError("begin beside a damaged record at the cap", err, state.ErrFull)
			_, err = s.Get(s.t.Context(), operation.GetParams{Scope: scope, Owner: "ann", ID: operation.ID("ann", "order-1")})
			s.wantError("get of a damaged record", err, state.ErrCorrupt)
			s.Clock.Advance(400 * day)
			if _, err := s.Sweep(s.t.Context()); err != nil {
				s.t.Fatal(err)
			}
		}
	})
}

func TestAForgedIntentFailsClosed(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		key := recordKey(s.t, "ann", "order-1")
		material := make([]byte, state.IntegrityKeyBytes)
		material[0] = 99
		forger, err := state.NewKeys(state.IntegrityKeyID(material), [][]byte{material})
		if err != nil {
			s.t.Fatal(err)
		}
		forged := forger.Seal(key, &state.Record{Version: state.Version{1}, State: state.Void, Token: c.Token, Expires: s.Now() + 1000})
		err = s.Engine.Transact(s.t.Context(), []state.Key{key}, func(snap engine.Snapshot) (engine.Plan, error) {
			return engine.Plan{Changes: []engine.Change{{Key: key, Item: forged}}, NotAfter: snap.Now + 1000}, nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
		_, err = s.begin("ann", "order-1")
		if !errors.Is(err, state.ErrKeyUnknown) && !errors.Is(err, state.ErrCorrupt) {
			s.t.Fatalf("begin on a forged record: %v", err)
		}
	})
}

func TestAnotherIntegrityKeyNeverReplays(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		s.mustComplete("ann", s.mustExecute("ann", "order-1"), receipt("done"))
		material := make([]byte, state.IntegrityKeyBytes)
		material[0] = 99
		other, err := state.NewKeys(state.IntegrityKeyID(material), [][]byte{material})
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := store.Open(s.t.Context(), s.Engine, store.Options{Keys: other, Clock: s.Clock}); !errors.Is(err, state.ErrKeyUnknown) {
			s.t.Fatalf("opening with another key: %v, want key unknown", err)
		}
	})
}

func TestABodyThatCannotBeUnderstoodIsDamage(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		s.mustComplete("ann", s.mustExecute("ann", "order-1"), receipt("done"))
		s.Rewrite(recordKey(s.t, "ann", "order-1"), func(r *state.Record) *state.Record {
			r.Body = []byte{77}
			return r
		})
		_, err := s.begin("ann", "order-1")
		s.wantError("begin", err, state.ErrCorrupt)
	})
}

func TestInQuarantineReceiptsAreReplayedAndNothingBegins(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		s.mustComplete("ann", s.mustExecute("ann", "done"), receipt("done"))
		held := s.mustExecute("ann", "held")
		s.Quarantine()
		if got, err := s.begin("ann", "done"); err != nil || got.Answer != operation.Replay {
			s.t.Fatalf("begin of what is done: %+v, %v, want replay", got, err)
		}
		_, err := s.begin("ann", "new")
		s.wantError("begin", err, state.ErrRecovering)
		if _, err := s.Renew(s.t.Context(), operation.RenewParams{Scope: scope, Owner: "ann", ID: held.ID, Token: held.Token}); err != nil {
			s.t.Fatalf("renew: %v", err)
		}
		s.mustComplete("ann", held, receipt("done"))
	})
}

var _ = storetest.Scope
