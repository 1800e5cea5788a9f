package operation_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/state"
)

func TestABeginSentAgainWithItsTokenGetsTheSameAnswerWhileItIsTrue(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		p := params("ann", "order-1")
		p.Token = state.Token{1}
		first, err := s.Begin(s.t.Context(), p)
		if err != nil || first.Repeated {
			s.t.Fatalf("begin: %+v, %v", first, err)
		}
		s.Clock.Advance(time.Second)
		again, err := s.Begin(s.t.Context(), p)
		if err != nil || !again.Repeated || again.Answer != operation.Execute || again.Fence != first.Fence || again.Token != first.Token {
			s.t.Fatalf("begin again: %+v, %v, want the same grant", again, err)
		}
		s.Clock.Advance(operation.DefaultLease)
		_, err = s.Begin(s.t.Context(), p)
		s.wantError("begin again after the lease", err, operation.ErrOutcomeUnknown)
		s.mustComplete("ann", first, receipt("done"))
		if got, err := s.Begin(s.t.Context(), p); err != nil || got.Answer != operation.Replay || string(got.Receipt.Body) != "done" {
			s.t.Fatalf("begin again after complete: %+v, %v, want replay", got, err)
		}
		p.Fingerprint = fingerprint(2)
		_, err = s.Begin(s.t.Context(), p)
		s.wantError("the token with another fingerprint", err, operation.ErrMismatch)
	})
}

func TestACompleteSentAgainGetsTheSameAnswerAndAnotherReceiptIsRefused(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		first := s.mustComplete("ann", c, receipt("done"))
		s.Clock.Advance(time.Hour)
		again := s.mustComplete("ann", c, receipt("done"))
		if !again.Repeated || !again.ReceiptExpiresAt.Equal(first.ReceiptExpiresAt) {
			s.t.Fatalf("complete again: %+v, want %+v repeated", again, first)
		}
		_, err := s.complete("ann", c, receipt("otherwise"))
		s.wantError("complete with another receipt", err, operation.ErrNotPending)
		c.Token = state.Token{9}
		_, err = s.complete("ann", c, receipt("done"))
		s.wantError("complete with another token", err, operation.ErrNotHolder)
		_, err = s.abort(c)
		s.wantError("abort with another token", err, operation.ErrNotHolder)
	})
}

func TestRetentionAndLimitsAreNoPartOfARepetition(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		s.mustComplete("ann", c, receipt("done"))
		s.restart(operation.Options{Retention: time.Hour, MaxReceipt: 1, NoTombstones: true})
		if again := s.mustComplete("ann", c, receipt("done")); !again.Repeated {
			s.t.Fatalf("complete under another policy: %+v, want repeated", again)
		}
		if got, err := s.begin("ann", "order-1"); err != nil || got.Answer != operation.Replay {
			s.t.Fatalf("begin under another policy: %+v, %v, want replay", got, err)
		}
	})
}

func TestALeaseIsRenewedOnlyWhileItIsAlive(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		renew := func(token state.Token, lease time.Duration) (operation.Renewed, error) {
			return s.Renew(s.t.Context(), operation.RenewParams{Scope: scope, Owner: "ann", ID: c.ID, Token: token, Lease: lease})
		}
		s.Clock.Advance(20 * time.Second)
		got, err := renew(c.Token, time.Minute)
		if want := s.Clock.Now().Add(time.Minute); err != nil || !got.LeaseUntil.Equal(want) {
			s.t.Fatalf("renew: %+v, %v, want %s", got, err, want)
		}
		s.Clock.Advance(time.Minute - time.Millisecond)
		_, err = s.begin("ann", "order-1")
		s.wantError("begin in the renewed lease", err, operation.ErrInFlight)
		_, err = renew(state.Token{9}, time.Minute)
		s.wantError("renew with another token", err, operation.ErrNotHolder)
		s.Clock.Advance(time.Millisecond)
		_, err = renew(c.Token, time.Minute)
		s.wantError("renew after the lease", err, operation.ErrOutcomeUnknown)
		s.mustComplete("ann", c, receipt("late, by the true token"))
		_, err = renew(c.Token, time.Minute)
		s.wantError("renew of what is done", err, operation.ErrNotPending)
		for _, lease := range []time.Duration{-1, time.Millisecond, time.Hour + 1} {
			_, err = renew(c.Token, lease)
			s.wantError("renew for "+lease.String(), err, operation.ErrInvalid)
		}
	})
}

func TestALateAbortByTheTrueTokenIsAcceptedUntilResolved(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		s.Clock.Advance(time.Hour)
		if _, err := s.abort(c); err != nil {
			s.t.Fatalf("a late abort by the true token: %v", err)
		}
		s.mustExecute("ann", "order-1")
	})
}

func TestAnOperatorResolvesWhatIsUnknown(t *testing.T) {
	eachOutcome(t, func(s *subject, outcome operation.Outcome) {
		c := s.mustExecute("ann", "order-1")
		_, err := s.resolve(c.ID, outcome, receipt("by hand"))
		s.wantError("resolve while the lease is alive", err, operation.ErrInFlight)
		s.Clock.Advance(time.Hour)
		got, err := s.resolve(c.ID, outcome, receipt("by hand"))
		want := map[operation.Outcome]operation.State{operation.Happened: operation.Settled, operation.DidNotHappen: operation.Aborted}[outcome]
		if err != nil || got != want {
			s.t.Fatalf("resolve: %s, %v, want %s", got, err, want)
		}
		op := s.get(c.ID)
		if op.State != want || op.Resolved == nil || op.Resolved.By != "olga" || op.Resolved.Note != "asked the ledger" ||
			op.Resolved.Outcome != outcome || !op.Resolved.At.Equal(s.Clock.Now()) {
			s.t.Fatalf("after the resolution: %+v, %+v", op, op.Resolved)
		}
		if _, err := s.resolve(c.ID, outcome, receipt("by hand")); err != nil {
			s.t.Fatalf("the same outcome again: %v", err)
		}
		other := operation.Happened
		if outcome == operation.Happened {
			other = operation.DidNotHappen
		}
		_, err = s.resolve(c.ID, other, receipt("by hand"))
		s.wantError("another outcome", err, operation.ErrNotPending)
		_, err = s.complete("ann", c, receipt("late"))
		s.wantError("a complete by the old token", err, operation.ErrNotHolder)
		_, err = s.abort(c)
		s.wantError("an abort by the old token", err, operation.ErrNotHolder)
		if outcome == operation.Happened {
			if again, err := s.begin("ann", "order-1"); err != nil || string(again.Receipt.Body) != "by hand" {
				s.t.Fatalf("begin: %+v, %v, want the operator's receipt", again, err)
			}
		} else {
			s.mustExecute("ann", "order-1")
		}
	})
}

func TestACompleteAfterDidNotHappenIsCounted(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		s.Clock.Advance(time.Hour)
		if _, err := s.resolve(c.ID, operation.DidNotHappen, operation.Receipt{}); err != nil {
			s.t.Fatal(err)
		}
		if n := s.Stats().LateCompletions; n != 0 {
			s.t.Fatalf("%d late completions before there was one", n)
		}
		_, err := s.complete("ann", c, receipt("it did"))
		s.wantError("complete", err, operation.ErrNotHolder)
		s.mustExecute("ann", "order-1")
		_, err = s.complete("ann", c, receipt("it did"))
		s.wantError("complete of what was claimed anew", err, operation.ErrNotHolder)
		if n := s.Stats().LateCompletions; n != 2 {
			s.t.Fatalf("%d late completions counted, want 2", n)
		}
	})
}

func TestWhatWasCompletedCannotBeResolved(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		s.mustComplete("ann", c, receipt("done"))
		s.Clock.Advance(time.Hour)
		for _, outcome := range []operation.Outcome{operation.Happened, operation.DidNotHappen} {
			_, err := s.resolve(c.ID, outcome, receipt("by hand"))
			s.wantError(string(outcome), err, operation.ErrNotPending)
		}
		_, err := s.resolve(operation.ID("ann", "never"), operation.Happened, receipt("by hand"))
		s.wantError("what never was", err, operation.ErrNotFound)
	})
}

func TestAnOperatorMendsADamagedOperation(t *testing.T) {
	eachOutcome(t, func(s *subject, outcome operation.Outcome) {
		s.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 1, 1 })
		c := s.mustExecute("ann", "order-1")
		s.Damage(recordKey(s.t, "ann", "order-1"))
		if _, err := s.resolve(c.ID, outcome, receipt("by hand")); err != nil {
			s.t.Fatalf("resolve of a damaged operation, its lease as it may be: %v", err)
		}
		if _, err := s.resolve(c.ID, outcome, receipt("by hand")); err != nil {
			s.t.Fatalf("the same outcome again: %v", err)
		}
		if outcome == operation.DidNotHappen {
			s.mustExecute("ann", "order-1") // and its place in the quota is free
			return
		}
		if got, err := s.begin("ann", "order-1"); err != nil || string(got.Receipt.Body) != "by hand" {
			s.t.Fatalf("begin: %+v, %v, want the operator's receipt", got, err)
		}
		_, err := s.begin("ann", "order-2")
		s.wantError("begin beside the one place that is taken", err, state.ErrFull)
	})
}

func TestAReceiptAboveTheLimitIsKeptAsDigestAndLength(t *testing.T) {
	each(t, operation.Options{MaxReceipt: 10}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		done := s.mustComplete("ann", c, receipt("eleven bytes"))
		if done.NotRetained == nil || done.NotRetained.Length != 12 {
			s.t.Fatalf("complete: %+v, want not retained", done)
		}
		if again := s.mustComplete("ann", c, receipt("eleven bytes")); !again.Repeated || again.NotRetained == nil {
			s.t.Fatalf("complete again: %+v, want the same answer", again)
		}
		_, err := s.begin("ann", "order-1")
		var gone *operation.NotRetainedError
		if !errors.As(err, &gone) || gone.Length != 12 || gone.Digest != done.NotRetained.Digest {
			s.t.Fatalf("begin: %v, want receipt not retained", err)
		}
		s.wantError("begin", err, operation.ErrReceiptNotRetained)
	})
}

func TestWithoutRoomForReceiptsTheResultIsStillRecorded(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		s.Caps(func(c *state.Caps) { c.Bytes, c.OwnerBytes = 10, 10 })
		c := s.mustExecute("ann", strings.Repeat("k", 256))
		done := s.mustComplete("ann", c, receipt(strings.Repeat("x", 500)))
		if done.NotRetained == nil || done.NotRetained.Length != 500 {
			s.t.Fatalf("complete: %+v, want not retained", done)
		}
		_, err := s.begin("ann", strings.Repeat("k", 256))
		s.wantError("begin", err, operation.ErrReceiptNotRetained)
		small := s.mustExecute("ann", "small")
		if done := s.mustComplete("ann", small, receipt("x")); done.NotRetained != nil {
			s.t.Fatalf("a small receipt: %+v, want retained", done)
		}
	})
}

func TestListsGoByIDOrByTheEndOfTheLease(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		var unknown []string
		for i, key := range []string{"a", "b", "c", "d"} {
			p := params("ann", key)
			p.Lease = time.Duration(10-i) * time.Second // the last is over first
			c, err := s.Begin(s.t.Context(), p)
			if err != nil {
				s.t.Fatal(err)
			}
			unknown = append([]string{c.ID}, unknown...)
		}
		s.Clock.Advance(time.Minute)
		s.mustComplete("ann", s.mustExecute("ann", "done"), receipt("done"))
		s.mustExecute("ann", "held")
		s.mustExecute("bob", "held")
		collect := func(p operation.ListParams) (ids []string) {
			p.Scope, p.Limit = scope, 2
			for {
				page, err := s.List(s.t.Context(), p)
				if err != nil || len(page.Operations) > 2 {
					s.t.Fatalf("list: %+v, %v", page, err)
				}
				for _, op := range page.Operations {
					if op.Receipt != nil {
						s.t.Fatal("a list holds a receipt")
					}
					ids = append(ids, op.ID)
				}
				if p.Cursor = page.Next; p.Cursor == "" {
					return ids
				}
			}
		}
		if got := collect(operation.ListParams{State: operation.OutcomeUnknown}); strings.Join(got, " ") != strings.Join(unknown, " ") {
			s.t.Fatalf("unknown outcomes come as %v, want %v", got, unknown)
		}
		all := collect(operation.ListParams{})
		for i := 1; i < len(all); i++ {
			if all[i-1] >= all[i] {
				s.t.Fatalf("operations are not listed by id: %v", all)
			}
		}
		for want, p := range map[int]operation.ListParams{
			7: {}, 6: {Owner: "ann"}, 1: {Owner: "bob"}, 0: {Owner: "eve"}, 2: {State: operation.InFlight},
		} {
			if got := collect(p); len(got) != want {
				s.t.Errorf("%+v lists %d operations, want %d", p, len(got), want)
			}
		}
		if got := collect(operation.ListParams{State: operation.Settled, Owner: "ann"}); len(got) != 1 {
			s.t.Errorf("settled lists %v", got)
		}
		_, err := s.List(s.t.Context(), operation.ListParams{Scope: scope, State: "odd"})
		s.wantError("an unknown state", err, operation.ErrInvalid)
	})
}

func TestAListNamesWhatIsDamaged(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		c := s.mustExecute("ann", "order-1")
		s.Damage(recordKey(s.t, "ann", "order-1"))
		page, err := s.List(s.t.Context(), operation.ListParams{Scope: scope})
		if err != nil || len(page.Damaged) != 1 || page.Damaged[0] != c.ID {
			s.t.Fatalf("list: %+v, %v", page, err)
		}
	})
}

func TestInvalidParametersAreRefusedBeforeAnythingIsSent(t *testing.T) {
	each(t, operation.Options{}, func(s *subject) {
		for name, change := range map[string]func(*operation.ClaimParams){
			"no fingerprint":       func(p *operation.ClaimParams) { p.Fingerprint = state.Digest{} },
			"a short lease":        func(p *operation.ClaimParams) { p.Lease = time.Second - 1 },
			"a long lease":         func(p *operation.ClaimParams) { p.Lease = time.Hour + 1 },
			"metadata of no shape": func(p *operation.ClaimParams) { p.Metadata = []byte(`[1]`) },
			"metadata cut off":     func(p *operation.ClaimParams) { p.Metadata = []byte(`{`) },
			"metadata too long":    func(p *operation.ClaimParams) { p.Metadata = []byte(`{"a":"` + strings.Repeat("x", 4096) + `"}`) },
		} {
			p := params("ann", "order-1")
			change(&p)
			_, err := s.Begin(s.t.Context(), p)
			s.wantError(name, err, operation.ErrInvalid)
		}
		c := s.mustExecute("ann", "order-1")
		for name, r := range map[string]operation.Receipt{
			"a status":       {Status: 1000},
			"a JSON body":    {JSON: true, Body: []byte("{")},
			"no JSON body":   {JSON: true},
			"a header":       {Headers: map[string][]string{"": {"x"}}},
			"headers":        {Headers: map[string][]string{"a": {strings.Repeat("x", 17<<10)}}},
			"a content type": {ContentType: strings.Repeat("x", 257)},
		} {
			_, err := s.complete("ann", c, r)
			s.wantError(name, err, operation.ErrInvalid)
		}
		_, err := s.Abort(s.t.Context(), operation.AbortParams{Scope: scope, Owner: "ann", ID: c.ID, Token: c.Token, Reason: strings.Repeat("x", 1025)})
		s.wantError("a long reason", err, operation.ErrInvalid)
		for _, id := range []string{"", "ab", strings.ToUpper(c.ID), c.ID + "00"} {
			_, err := s.Get(s.t.Context(), operation.GetParams{Scope: scope, Owner: "ann", ID: id})
			s.wantError("the id "+id, err, operation.ErrInvalid)
		}
		s.mustComplete("ann", c, receipt("none of them changed anything"))
	})
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]operation.Options{
		"retention below a second": {Retention: 1},
		"negative retention":       {Retention: -time.Hour},
		"tombstones below 1 s":     {Tombstone: 1},
		"tombstones on and off":    {Tombstone: time.Hour, NoTombstones: true},
		"a negative size":          {MaxReceipt: -1},
		"too large a size":         {MaxReceipt: 16 << 20},
	} {
		if _, err := operation.New(nil, o); !errors.Is(err, operation.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}
