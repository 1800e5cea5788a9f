package challenge_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/challenge"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

var (
	job   = challenge.Job{1}
	other = challenge.Job{2}
)

// gate is a fixture with challenges on its store.
type gate struct {
	*storetest.Fixture
	*challenge.Challenges
	t *testing.T
}

// each runs a test on every engine.
func each(t *testing.T, test func(t *testing.T, g *gate)) {
	t.Helper()
	t.Parallel()
	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) { test(t, newGate(t, f)) })
}

func newGate(t *testing.T, f *storetest.Fixture) *gate {
	return &gate{Fixture: f, Challenges: challenge.New(f.Store, challenge.Options{}), t: t}
}

func (g *gate) reopen() {
	g.Reopen()
	g.Challenges = challenge.New(g.Store, challenge.Options{})
}

func issueParams() challenge.IssueParams {
	return challenge.IssueParams{Scope: storetest.Scope, Owner: "alice", Job: job, TTL: time.Hour}
}

func lookupParams() challenge.LookupParams {
	return challenge.LookupParams{Scope: storetest.Scope, Owner: "alice", Job: job}
}

func consumeParams(i challenge.Issued) challenge.ConsumeParams {
	return challenge.ConsumeParams{Scope: storetest.Scope, Owner: "alice", Job: i.Job, Nonce: i.Nonce, Epoch: i.Epoch}
}

func (g *gate) issue(change ...func(*challenge.IssueParams)) challenge.Issued {
	g.t.Helper()
	p := issueParams()
	for _, c := range change {
		c(&p)
	}
	i, err := g.Issue(g.t.Context(), p)
	if err != nil {
		g.t.Fatalf("issue: %v", err)
	}
	return i
}

func (g *gate) consume(i challenge.Issued) challenge.Consumed {
	g.t.Helper()
	c, err := g.Consume(g.t.Context(), consumeParams(i))
	if err != nil {
		g.t.Fatalf("consume: %v", err)
	}
	return c
}

func (g *gate) advance(from uint64) {
	g.t.Helper()
	if _, err := g.AdvanceEpoch(g.t.Context(), challenge.AdvanceParams{Scope: storetest.Scope, From: from}); err != nil {
		g.t.Fatalf("advance the epoch: %v", err)
	}
}

func (g *gate) stands(want challenge.State) challenge.Challenge {
	g.t.Helper()
	c, err := g.Lookup(g.t.Context(), lookupParams())
	if err != nil || c.State != want {
		g.t.Fatalf("the challenge is %q, %v; want %q", c.State, err, want)
	}
	return c
}

func wants(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func supersede(p *challenge.IssueParams) { p.Supersede = true }

func TestIssueLookupConsume(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		i := g.issue()
		want := challenge.Issued{Job: job, Nonce: i.Nonce, Epoch: 1, IssuedAt: storetest.Start, ExpiresAt: storetest.Start.Add(time.Hour)}
		if i != want || i.Nonce == (challenge.Nonce{}) {
			t.Fatalf("issued %+v, want %+v", i, want)
		}
		pending := g.stands(challenge.StatePending)
		if want := (challenge.Challenge{Job: job, State: challenge.StatePending, Epoch: 1, IssuedAt: i.IssuedAt, ExpiresAt: i.ExpiresAt}); pending != want {
			t.Fatalf("found %+v, want %+v", pending, want)
		}
		g.Clock.Advance(time.Minute)
		if c := g.consume(i); !c.ConsumedAt.Equal(storetest.Start.Add(time.Minute)) || c.Repeated {
			t.Fatalf("consumed %+v", c)
		}
		consumed := g.stands(challenge.StateConsumed)
		pending.State, pending.ConsumedAt = challenge.StateConsumed, storetest.Start.Add(time.Minute)
		if consumed != pending {
			t.Fatalf("found %+v, want %+v", consumed, pending)
		}
	})
}

func TestEveryIssueDrawsAnotherNonce(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		seen := map[challenge.Nonce]bool{}
		for n := range 16 {
			i := g.issue(func(p *challenge.IssueParams) { p.Job = challenge.Job{byte(n)} })
			if seen[i.Nonce] {
				t.Fatal("a nonce came twice")
			}
			seen[i.Nonce] = true
		}
	})
}

// Every refusal by its name, and each before those that are further down.
func TestRefusalsInTheirOrder(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		i := g.issue()
		wrong := func(p *challenge.ConsumeParams) { p.Nonce[31] ^= 1 }
		lower := func(p *challenge.ConsumeParams) { p.Epoch = 7 }
		stranger := func(p *challenge.ConsumeParams) { p.Owner = "bob" }
		nowhere := func(p *challenge.ConsumeParams) { p.Job = other }
		refused := func(want error, change ...func(*challenge.ConsumeParams)) {
			t.Helper()
			p := consumeParams(i)
			for _, c := range change {
				c(&p)
			}
			_, err := g.Consume(t.Context(), p)
			wants(t, fmt.Errorf("while releasing: %w", err), want)
		}
		refused(challenge.ErrUnknownJob, nowhere)
		refused(challenge.ErrUnknownJob, stranger, wrong, lower)
		refused(challenge.ErrMismatch, wrong)
		refused(challenge.ErrMismatch, wrong, lower)
		refused(challenge.ErrStaleEpoch, lower)
		g.Clock.Advance(time.Hour)
		refused(challenge.ErrUnknownJob, nowhere)
		refused(challenge.ErrMismatch, wrong)
		refused(challenge.ErrStaleEpoch, lower)
		refused(challenge.ErrExpired)
		g.advance(1)
		refused(challenge.ErrMismatch, wrong, lower)
		refused(challenge.ErrStaleEpoch)                                                   // the challenge's
		refused(challenge.ErrStaleEpoch, func(p *challenge.ConsumeParams) { p.Epoch = 2 }) // also if the given one is right

		i = g.issue(func(p *challenge.IssueParams) { p.Job = other })
		g.consume(i)
		refused(challenge.ErrAlreadyConsumed)
		g.Clock.Advance(2 * time.Hour)
		g.advance(2)
		refused(challenge.ErrAlreadyConsumed, wrong, lower)
		refused(challenge.ErrUnknownJob, stranger)
	})
}

func TestAMismatchConsumesNothing(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		i := g.issue()
		for bit := range 256 {
			p := consumeParams(i)
			p.Nonce[bit/8] ^= 1 << (bit % 8)
			_, err := g.Consume(t.Context(), p)
			wants(t, err, challenge.ErrMismatch)
		}
		g.stands(challenge.StatePending)
		g.consume(i)
	})
}

func TestTheSecondConsumeSaysAlreadyConsumed(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		i := g.issue()
		g.consume(i)
		_, err := g.Consume(t.Context(), consumeParams(i))
		wants(t, err, challenge.ErrAlreadyConsumed)
		g.reopen()
		_, err = g.Consume(t.Context(), consumeParams(i))
		wants(t, err, challenge.ErrAlreadyConsumed)
	})
}

func TestConsumeAgainWithItsTokenGivesTheSameAnswer(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		i := g.issue()
		p := consumeParams(i)
		p.Token = state.Token{9}
		first, err := g.Consume(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		g.Clock.Advance(time.Hour) // the challenge would be over now
		g.reopen()
		first.Repeated = true
		for range 2 {
			again, err := g.Consume(t.Context(), p)
			if err != nil || again != first {
				t.Fatalf("again: %+v, %v; want %+v", again, err, first)
			}
		}
		for name, change := range map[string]func(*challenge.ConsumeParams){
			"another nonce": func(p *challenge.ConsumeParams) { p.Nonce[0] ^= 1 },
			"another epoch": func(p *challenge.ConsumeParams) { p.Epoch++ },
			"another token": func(p *challenge.ConsumeParams) { p.Token[0]++ },
		} {
			q := p
			change(&q)
			if _, err := g.Consume(t.Context(), q); !errors.Is(err, challenge.ErrAlreadyConsumed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		p.Owner = "bob"
		_, err = g.Consume(t.Context(), p)
		wants(t, err, challenge.ErrUnknownJob)
	})
}

func TestIssueAgainWithItsTokenGivesTheSameNonce(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		token := func(p *challenge.IssueParams) { p.Token = state.Token{7} }
		i := g.issue(token)
		g.Clock.Advance(time.Minute)
		g.reopen()
		i.Repeated = true
		if again := g.issue(token); again != i {
			t.Fatalf("again: %+v, want %+v", again, i)
		}
		for name, change := range map[string]func(*challenge.IssueParams){
			"another TTL":   func(p *challenge.IssueParams) { p.TTL += time.Second },
			"another owner": func(p *challenge.IssueParams) { p.Owner = "bob" },
			"superseding":   supersede,
		} {
			p := issueParams()
			token(&p)
			change(&p)
			if _, err := g.Issue(t.Context(), p); !errors.Is(err, challenge.ErrAlreadyPending) {
				t.Errorf("%s: %v", name, err)
			}
		}
		g.consume(i)
		p := issueParams()
		token(&p)
		_, err := g.Issue(t.Context(), p)
		wants(t, err, challenge.ErrAlreadyConsumed)
	})
}

// storm runs call in many goroutines on two stores and returns how many succeeded; the others must fail as want.
func (g *gate) storm(want error, call func(ctx context.Context, c *challenge.Challenges) error) int {
	g.t.Helper()
	stores := []*store.Store{g.Store, g.Second()}
	errs := make(chan error, 64)
	var start, done sync.WaitGroup
	start.Add(1)
	for n := range cap(errs) {
		done.Go(func() {
			start.Wait()
			errs <- call(g.t.Context(), challenge.New(stores[n%len(stores)], challenge.Options{}))
		})
	}
	start.Done()
	done.Wait()
	close(errs)
	won := 0
	for err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, want):
			g.t.Errorf("a loser got %v, want %v", err, want)
		}
	}
	return won
}

func TestIssueAgainOnceItsTokenConsumedTheJobSaysAlreadyConsumed(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		issue := issueParams()
		issue.Token = state.Token{7}
		i, err := g.Issue(t.Context(), issue)
		if err != nil {
			t.Fatalf("issue: %v", err)
		}
		consume := consumeParams(i)
		consume.Token = issue.Token
		if _, err := g.Consume(t.Context(), consume); err != nil {
			t.Fatalf("consume with the token of the issue: %v", err)
		}
		if again, err := g.Issue(t.Context(), issue); !errors.Is(err, challenge.ErrAlreadyConsumed) {
			t.Fatalf("issue again: %+v, %v, want already consumed", again, err)
		}
	})
}

func TestConcurrentConsumeHasOneWinner(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		i := g.issue()
		won := g.storm(challenge.ErrAlreadyConsumed, func(ctx context.Context, c *challenge.Challenges) error {
			_, err := c.Consume(ctx, consumeParams(i))
			return err
		})
		if won != 1 {
			t.Fatalf("%d callers consumed one challenge", won)
		}
	})
}

func TestConcurrentIssueHasOneWinner(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		won := g.storm(challenge.ErrAlreadyPending, func(ctx context.Context, c *challenge.Challenges) error {
			_, err := c.Issue(ctx, issueParams())
			return err
		})
		if won != 1 {
			t.Fatalf("%d callers were issued one challenge", won)
		}
	})
}

func TestOfConcurrentAdvancesOneWins(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		won := g.storm(challenge.ErrEpochConflict, func(ctx context.Context, c *challenge.Challenges) error {
			_, err := c.AdvanceEpoch(ctx, challenge.AdvanceParams{Scope: storetest.Scope, From: 1})
			return err
		})
		if e, err := g.Epoch(t.Context(), challenge.EpochParams{Scope: storetest.Scope}); won != 1 || err != nil || e.Epoch != 2 {
			t.Fatalf("%d callers advanced the epoch to %d, %v", won, e.Epoch, err)
		}
	})
}

func TestAnExpiredPendingChallengeDoesNotBlockAnotherIssue(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		first := g.issue()
		g.Clock.Advance(time.Hour - time.Millisecond)
		_, err := g.Issue(t.Context(), issueParams())
		wants(t, err, challenge.ErrAlreadyPending)
		g.Clock.Advance(time.Millisecond)
		g.stands(challenge.StateExpired)
		second := g.issue(func(p *challenge.IssueParams) { p.Owner = "alice" })
		_, err = g.Consume(t.Context(), consumeParams(first))
		wants(t, err, challenge.ErrMismatch) // its nonce is dead for ever
		g.consume(second)
	})
}

func TestAChallengeOfAnOlderEpochIsStaleAndDoesNotBlockAnotherIssue(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		first := g.issue()
		g.advance(1)
		g.stands(challenge.StateExpired)
		_, err := g.Consume(t.Context(), consumeParams(first))
		wants(t, err, challenge.ErrStaleEpoch)
		second := g.issue()
		if second.Epoch != 2 {
			t.Fatalf("issued in epoch %d, want 2", second.Epoch)
		}
		_, err = g.Consume(t.Context(), consumeParams(first))
		wants(t, err, challenge.ErrMismatch)
		g.consume(second)
		g.advance(2)
		_, err = g.Issue(t.Context(), issueParams()) // a marker outlives epochs
		wants(t, err, challenge.ErrAlreadyConsumed)
	})
}

func TestAChallengeOfAnOlderGenerationIsExpired(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		first := g.issue()
		err := g.ChangeScope(t.Context(), storetest.Scope, func(s *state.Scope, _ int64) error {
			s.Generation++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		g.stands(challenge.StateExpired)
		_, err = g.Consume(t.Context(), consumeParams(first))
		wants(t, err, challenge.ErrExpired)
		g.consume(g.issue())
	})
}

func TestSupersedeReplacesTheOwnersPendingChallengeOnly(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		first := g.issue(supersede) // there is none yet
		g.Clock.Advance(time.Minute)
		second := g.issue(supersede)
		if want := (challenge.Issued{
			Job: job, Nonce: second.Nonce, Epoch: 1, IssuedAt: storetest.Start.Add(time.Minute), ExpiresAt: storetest.Start.Add(61 * time.Minute),
		}); second != want || second.Nonce == first.Nonce {
			t.Fatalf("superseded by %+v, want %+v", second, want)
		}
		if c := g.stands(challenge.StatePending); !c.IssuedAt.Equal(second.IssuedAt) || !c.ExpiresAt.Equal(second.ExpiresAt) {
			t.Fatalf("found %+v", c)
		}
		_, err := g.Consume(t.Context(), consumeParams(first))
		wants(t, err, challenge.ErrMismatch)
		p := issueParams()
		p.Owner, p.Supersede = "bob", true
		_, err = g.Issue(t.Context(), p)
		wants(t, err, challenge.ErrAlreadyPending)
		g.consume(second)
		for _, owner := range []string{"alice", "bob"} {
			p.Owner = owner
			_, err = g.Issue(t.Context(), p)
			wants(t, err, challenge.ErrAlreadyConsumed)
		}
	})
}

func TestSupersedeAgainWithItsTokenGivesTheSameNonce(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		token := func(p *challenge.IssueParams) { p.Token = state.Token{7} }
		g.issue()
		second := g.issue(supersede, token)
		g.Clock.Advance(time.Minute)
		g.reopen()
		second.Repeated = true
		if again := g.issue(supersede, token); again != second {
			t.Fatalf("again: %+v, want %+v", again, second)
		}
		g.Clock.Advance(time.Hour)
		p := issueParams()
		supersede(&p)
		token(&p)
		_, err := g.Issue(t.Context(), p)
		wants(t, err, challenge.ErrExpired)
		third := g.issue(supersede)
		g.advance(1)
		p.Token = state.Token{8}
		fourth := g.issue(supersede, func(p *challenge.IssueParams) { p.Token = state.Token{8} })
		if fourth.Epoch != 2 || fourth.Repeated || fourth.Nonce == third.Nonce {
			t.Fatalf("issued %+v", fourth)
		}
		g.advance(2)
		_, err = g.Issue(t.Context(), p)
		wants(t, err, challenge.ErrExpired)
	})
}

func TestATokenWhoseChallengeIsOverIsIssuedNoOther(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		p := issueParams()
		p.Token = state.Token{7}
		if _, err := g.Issue(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		g.Clock.Advance(time.Hour)
		for _, change := range []func(*challenge.IssueParams){func(*challenge.IssueParams) {}, supersede} {
			change(&p)
			_, err := g.Issue(t.Context(), p)
			wants(t, err, challenge.ErrExpired)
		}
		g.issue()
	})
}

func TestConcurrentSupersedesLeaveOneLiveNonce(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		var mu sync.Mutex
		var all []challenge.Issued
		g.storm(challenge.ErrUnavailable, func(ctx context.Context, c *challenge.Challenges) error {
			p := issueParams()
			p.Supersede = true
			i, err := c.Issue(ctx, p)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, i)
			}
			return err
		})
		consumed := 0
		for _, i := range all {
			if _, err := g.Consume(t.Context(), consumeParams(i)); err == nil {
				consumed++
			}
		}
		if len(all) == 0 || consumed != 1 {
			t.Fatalf("of %d nonces %d were good", len(all), consumed)
		}
	})
}

func TestAJobBelongsToTheScopeAndItsChallengeToItsOwner(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		i := g.issue()
		bob := issueParams()
		bob.Owner = "bob"
		_, err := g.Issue(t.Context(), bob)
		wants(t, err, challenge.ErrAlreadyPending)
		look := lookupParams()
		look.Owner = "bob"
		_, err = g.Lookup(t.Context(), look)
		wants(t, err, challenge.ErrUnknownJob)
		g.consume(i)
		_, err = g.Issue(t.Context(), bob)
		wants(t, err, challenge.ErrAlreadyConsumed)

		if err := g.CreateScope(t.Context(), "elsewhere"); err != nil {
			t.Fatal(err)
		}
		look = lookupParams()
		look.Scope = "elsewhere"
		_, err = g.Lookup(t.Context(), look)
		wants(t, err, challenge.ErrUnknownJob)
		there := issueParams()
		there.Scope = "elsewhere"
		if _, err := g.Issue(t.Context(), there); err != nil {
			t.Fatal(err)
		}
	})
}

// The replay window: the job stays refused for 24 h, and longer where the nonce could have lived that long.
func TestTheJobStaysRefusedWhileItsMarkerLives(t *testing.T) {
	t.Parallel()
	const slack = 2*5*time.Second + 5*time.Minute // twice the skew, tolerance and three minutes
	for _, c := range []struct {
		name      string
		keep, ttl time.Duration
		least     time.Duration
	}{
		{"24 h by default", 0, time.Hour, 24 * time.Hour},
		{"longer than a TTL of 24 h", 0, 24 * time.Hour, 24*time.Hour + slack},
		{"as long as asked", 100 * time.Hour, time.Hour, 100 * time.Hour},
		{"never shorter than the TTL", time.Second, time.Hour, time.Hour + slack},
		{"never shorter than the TTL, by a negative time", -time.Hour, time.Second, time.Second + slack},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, g *gate) {
				g.Challenges = challenge.New(g.Store, challenge.Options{Keep: c.keep})
				i := g.issue(func(p *challenge.IssueParams) { p.TTL = c.ttl })
				g.consume(i)
				g.Clock.Advance(c.least - time.Millisecond)
				if _, err := g.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				_, err := g.Issue(t.Context(), issueParams())
				wants(t, err, challenge.ErrAlreadyConsumed)
				_, err = g.Consume(t.Context(), consumeParams(i))
				wants(t, err, challenge.ErrAlreadyConsumed)
				g.Clock.Advance(25 * time.Hour)
				if again := g.issue(); again.Nonce == i.Nonce {
					t.Fatal("a nonce came twice")
				}
				_, err = g.Consume(t.Context(), consumeParams(i))
				wants(t, err, challenge.ErrMismatch)
			})
		})
	}
}

func TestPendingAndConsumedChallengesAreSweptWhenTheyAreOver(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		left := func() int {
			t.Helper()
			if _, err := g.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			page, _, err := g.Scan(t.Context(), storetest.Scope, state.KindChallenge, "", "", 10)
			if err != nil {
				t.Fatal(err)
			}
			return len(page)
		}
		g.consume(g.issue())
		g.issue(func(p *challenge.IssueParams) { p.Job = other })
		g.Clock.Advance(time.Hour)
		if n := left(); n != 2 {
			t.Fatalf("%d records are left right after an expiry, want 2: they are answered by name for a while", n)
		}
		g.Clock.Advance(10 * time.Minute)
		if n := left(); n != 1 {
			t.Fatalf("%d records are left, want the marker alone", n)
		}
		g.stands(challenge.StateConsumed)
		g.Clock.Advance(24 * time.Hour)
		if n := left(); n != 0 {
			t.Fatalf("%d records are left, want none", n)
		}
		_, err := g.Lookup(t.Context(), lookupParams())
		wants(t, err, challenge.ErrUnknownJob)
	})
}

func TestTheEpochStartsAt1AndAdvancesAcrossRestarts(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		is := func(want uint64) {
			t.Helper()
			if e, err := g.Epoch(t.Context(), challenge.EpochParams{Scope: storetest.Scope}); err != nil || e != (challenge.Epoch{Epoch: want}) {
				t.Fatalf("the epoch is %+v, %v; want %d", e, err, want)
			}
		}
		is(1)
		g.reopen()
		is(1)
		p := challenge.AdvanceParams{Scope: storetest.Scope, From: 1, Token: state.Token{5}}
		if e, err := g.AdvanceEpoch(t.Context(), p); err != nil || e != (challenge.Epoch{Epoch: 2}) {
			t.Fatalf("advanced to %+v, %v", e, err)
		}
		g.reopen()
		is(2)
		if e, err := g.AdvanceEpoch(t.Context(), p); err != nil || e != (challenge.Epoch{Epoch: 2, Repeated: true}) {
			t.Fatalf("again: %+v, %v", e, err)
		}
		g.advance(2)
		for _, from := range []uint64{1, 2, 4, 1 << 50} { // never lower, never a leap
			_, err := g.AdvanceEpoch(t.Context(), challenge.AdvanceParams{Scope: storetest.Scope, From: from})
			var conflict *challenge.EpochConflictError
			if !errors.Is(err, challenge.ErrEpochConflict) || !errors.As(err, &conflict) || conflict.Epoch != 3 {
				t.Fatalf("from %d: %v", from, err)
			}
		}
		_, err := g.AdvanceEpoch(t.Context(), p) // no longer true
		wants(t, err, challenge.ErrEpochConflict)
		g.reopen()
		is(3)
	})
}

func TestADamagedChallengeIsNotFree(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		key := state.Key{Scope: storetest.Scope, Kind: state.KindChallenge, ID: string(job[:])}
		i := g.issue()
		g.consume(i)
		corrupt := func() {
			t.Helper()
			_, err := g.Issue(t.Context(), issueParams())
			wants(t, err, challenge.ErrCorrupt)
			p := issueParams()
			p.Supersede = true
			_, err = g.Issue(t.Context(), p)
			wants(t, err, challenge.ErrCorrupt)
			_, err = g.Lookup(t.Context(), lookupParams())
			wants(t, err, challenge.ErrCorrupt)
			_, err = g.Consume(t.Context(), consumeParams(i))
			wants(t, err, challenge.ErrCorrupt)
		}
		g.Damage(key)
		corrupt()
		g.Clock.Advance(48 * time.Hour)
		if _, err := g.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		corrupt() // never pruned
	})
}

func TestABodyThatDoesNotDecodeIsCorrupt(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		key := state.Key{Scope: storetest.Scope, Kind: state.KindChallenge, ID: string(job[:])}
		i := g.issue()
		for _, body := range [][]byte{nil, {1}, append([]byte{9}, i.Nonce[:]...), append([]byte{1, 0}, i.Nonce[:]...)} {
			g.Rewrite(key, func(r *state.Record) *state.Record {
				r.Body = body
				return r
			})
			_, err := g.Consume(t.Context(), consumeParams(i))
			wants(t, err, challenge.ErrCorrupt)
		}
		for _, body := range [][]byte{nil, make([]byte, 17), {2, 0, 0}, append([]byte{2}, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"...)} {
			g.Rewrite(key, func(r *state.Record) *state.Record {
				r.State, r.Body = state.Settled, body
				return r
			})
			_, err := g.Lookup(t.Context(), lookupParams())
			wants(t, err, challenge.ErrCorrupt)
			_, err = g.Consume(t.Context(), consumeParams(i))
			wants(t, err, challenge.ErrAlreadyConsumed)
		}
	})
}

func TestInQuarantineNothingNewBegins(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		pending := g.issue()
		consumed := g.issue(func(p *challenge.IssueParams) { p.Job = other })
		p := consumeParams(consumed)
		p.Token = state.Token{3}
		if _, err := g.Consume(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		g.Quarantine()
		for name, call := range map[string]func() error{
			"issue": func() error {
				q := issueParams()
				q.Job = challenge.Job{3}
				_, err := g.Issue(t.Context(), q)
				return err
			},
			"supersede": func() error {
				q := issueParams()
				q.Supersede = true
				_, err := g.Issue(t.Context(), q)
				return err
			},
			"consume": func() error { _, err := g.Consume(t.Context(), consumeParams(pending)); return err },
			"advance": func() error {
				_, err := g.AdvanceEpoch(t.Context(), challenge.AdvanceParams{Scope: storetest.Scope, From: 1})
				return err
			},
		} {
			if err := call(); !errors.Is(err, state.ErrRecovering) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// What has happened is answered.
		g.stands(challenge.StatePending)
		if c, err := g.Consume(t.Context(), p); err != nil || !c.Repeated {
			t.Errorf("the same consume again: %+v, %v", c, err)
		}
		_, err := g.Consume(t.Context(), consumeParams(consumed))
		wants(t, err, challenge.ErrAlreadyConsumed)
		if err := g.Lift(t.Context(), storetest.Scope, "reconciled", 0); err != nil {
			t.Fatal(err)
		}
		g.consume(pending)
	})
}

func TestCapacityRefusesAndKeepsWhatIsLive(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		g.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 3, 2 })
		to := func(owner string, n byte) challenge.IssueParams {
			p := issueParams()
			p.Owner, p.Job = owner, challenge.Job{n}
			return p
		}
		for n, owner := range []string{"alice", "alice", "bob"} {
			if _, err := g.Issue(t.Context(), to(owner, byte(n))); err != nil {
				t.Fatal(err)
			}
			if n == 1 {
				_, err := g.Issue(t.Context(), to("alice", 9))
				wants(t, err, state.ErrOwnerFull)
			}
		}
		_, err := g.Issue(t.Context(), to("bob", 9))
		wants(t, err, state.ErrFull)
		for n, owner := range []string{"alice", "alice", "bob"} {
			if _, err := g.Lookup(t.Context(), challenge.LookupParams{Scope: storetest.Scope, Owner: owner, Job: challenge.Job{byte(n)}}); err != nil {
				t.Errorf("challenge %d: %v", n, err)
			}
		}
	})
}

func TestRefusalsWriteNothing(t *testing.T) {
	each(t, func(t *testing.T, g *gate) {
		i := g.issue()
		g.consume(g.issue(func(p *challenge.IssueParams) { p.Job = other }))
		before := g.versions()
		_, err := g.Issue(t.Context(), issueParams())
		wants(t, err, challenge.ErrAlreadyPending)
		wrong := consumeParams(i)
		wrong.Nonce[0] ^= 1
		_, err = g.Consume(t.Context(), wrong)
		wants(t, err, challenge.ErrMismatch)
		wrong.Job = challenge.Job{3}
		_, err = g.Consume(t.Context(), wrong)
		wants(t, err, challenge.ErrUnknownJob)
		_, err = g.AdvanceEpoch(t.Context(), challenge.AdvanceParams{Scope: storetest.Scope, From: 5})
		wants(t, err, challenge.ErrEpochConflict)
		g.stands(challenge.StatePending)
		after := g.versions()
		if len(before) == 0 || len(before) != len(after) {
			t.Fatalf("%d records before, %d after", len(before), len(after))
		}
		for key, version := range before {
			if after[key] != version {
				t.Errorf("a %s record was written", key.Kind)
			}
		}
	})
}

func (g *gate) versions() map[state.Key]state.Version {
	g.t.Helper()
	all := map[state.Key]state.Version{}
	for _, kind := range state.Kinds() {
		page, _, err := g.Engine.Scan(g.t.Context(), storetest.Scope, kind, "", "", 100)
		if err != nil {
			g.t.Fatal(err)
		}
		for _, found := range page {
			all[found.Key] = found.Item.Version
		}
	}
	return all
}

func TestWhatIsNeverAcceptedIsInvalid(t *testing.T) {
	t.Parallel()
	g := newGate(t, storetest.Memory(t))
	long := string(make([]byte, 257))
	for name, change := range map[string]func(*challenge.IssueParams){
		"no owner":         func(p *challenge.IssueParams) { p.Owner = "" },
		"a control":        func(p *challenge.IssueParams) { p.Owner = "a\n" },
		"a long owner":     func(p *challenge.IssueParams) { p.Owner = long },
		"a TTL below 1 s":  func(p *challenge.IssueParams) { p.TTL = time.Second - 1 },
		"a TTL above 24 h": func(p *challenge.IssueParams) { p.TTL = 24*time.Hour + 1 },
		"a negative TTL":   func(p *challenge.IssueParams) { p.TTL = -time.Second },
	} {
		p := issueParams()
		change(&p)
		if _, err := g.Issue(t.Context(), p); !errors.Is(err, challenge.ErrInvalid) {
			t.Errorf("issue with %s: %v", name, err)
		}
	}
	i := g.issue()
	for name, change := range map[string]func(*challenge.ConsumeParams){
		"no owner":                func(p *challenge.ConsumeParams) { p.Owner = "" },
		"epoch 0":                 func(p *challenge.ConsumeParams) { p.Epoch = 0 },
		"an epoch out of range":   func(p *challenge.ConsumeParams) { p.Epoch = 1 << 53 },
		"an epoch below any sign": func(p *challenge.ConsumeParams) { p.Epoch = 1<<64 - 1 },
	} {
		p := consumeParams(i)
		change(&p)
		if _, err := g.Consume(t.Context(), p); !errors.Is(err, challenge.ErrInvalid) {
			t.Errorf("consume with %s: %v", name, err)
		}
	}
	for _, from := range []uint64{0, 1<<53 - 1, 1<<64 - 1} {
		if _, err := g.AdvanceEpoch(t.Context(), challenge.AdvanceParams{Scope: storetest.Scope, From: from}); !errors.Is(err, challenge.ErrInvalid) {
			t.Errorf("advance from %d: %v", from, err)
		}
	}
	if _, err := g.Lookup(t.Context(), challenge.LookupParams{Scope: storetest.Scope, Job: job}); !errors.Is(err, challenge.ErrInvalid) {
		t.Errorf("look-up without an owner: %v", err)
	}
	for _, scope := range []string{"", "_store", long} {
		p := issueParams()
		p.Scope = scope
		_, issue := g.Issue(t.Context(), p)
		_, advance := g.AdvanceEpoch(t.Context(), challenge.AdvanceParams{Scope: scope, From: 1})
		_, epoch := g.Epoch(t.Context(), challenge.EpochParams{Scope: scope})
		for _, err := range []error{issue, advance, epoch} {
			if !errors.Is(err, challenge.ErrInvalid) {
				t.Errorf("scope %q: %v", scope, err)
			}
		}
	}
	p := issueParams()
	p.Scope = "missing"
	_, err := g.Issue(t.Context(), p)
	wants(t, err, state.ErrNoScope)
}

func TestAADIsWhatTheVectorsSay(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../vectors/ids.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		AAD []struct {
			Epoch      uint64
			Job, Nonce string
			AAD        string `json:"aad_hex"`
		}
	}
	if err := json.Unmarshal(file, &v); err != nil || len(v.AAD) == 0 {
		t.Fatalf("%d vectors, %v", len(v.AAD), err)
	}
	for _, want := range v.AAD {
		var i challenge.Issued
		i.Epoch = want.Epoch
		for dst, text := range map[*[32]byte]string{(*[32]byte)(&i.Job): want.Job, (*[32]byte)(&i.Nonce): want.Nonce} {
			if n, err := hex.Decode(dst[:], []byte(text)); err != nil || n != 32 {
				t.Fatal(n, err)
			}
		}
		if got := hex.EncodeToString(i.AAD()); got != want.AAD {
			t.Errorf("%s, want %s", got, want.AAD)
		}
	}
}
