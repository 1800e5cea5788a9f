package challenge_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/challenge"
	"github.com/counterfoil/counterfoil/internal/storetest"
)

// model is what a plain reading of the rules gives: the challenge of each job, and the epoch.
type model struct {
	epoch uint64
	jobs  map[challenge.Job]*issuedOnce
}

type issuedOnce struct {
	challenge.Issued
	owner    string
	consumed time.Time // zero: not
	marker   time.Time // until when it is refused
}

func (m *model) find(job challenge.Job, now time.Time) *issuedOnce {
	i := m.jobs[job]
	if i == nil || !i.consumed.IsZero() && !now.Before(i.marker) {
		return nil
	}
	return i
}

func (m *model) live(i *issuedOnce, now time.Time) bool {
	return i != nil && (!i.consumed.IsZero() || i.Epoch == m.epoch && now.Before(i.ExpiresAt))
}

func (m *model) issue(p challenge.IssueParams, now time.Time) error {
	i := m.find(p.Job, now)
	switch {
	case !m.live(i, now):
		return nil
	case !i.consumed.IsZero():
		return challenge.ErrAlreadyConsumed
	case p.Supersede && i.owner == p.Owner:
		return nil
	}
	return challenge.ErrAlreadyPending
}

func (m *model) consume(p challenge.ConsumeParams, now time.Time) error {
	i := m.find(p.Job, now)
	switch {
	case i == nil || i.owner != p.Owner:
		return challenge.ErrUnknownJob
	case !i.consumed.IsZero():
		return challenge.ErrAlreadyConsumed
	case i.Nonce != p.Nonce:
		return challenge.ErrMismatch
	case p.Epoch != m.epoch, i.Epoch != m.epoch:
		return challenge.ErrStaleEpoch
	case !now.Before(i.ExpiresAt):
		return challenge.ErrExpired
	}
	return nil
}

// Random lives of a few jobs of two owners, with every nonce that ever was, against the plain reading. The sweeper runs
// at random and must change no answer; only a record that is over for minutes may turn unknown.
func TestRandomLivesFollowTheRules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		f := storetest.Memory(t)
		c := challenge.New(f.Store, challenge.Options{Keep: time.Hour})
		m := &model{epoch: 1, jobs: map[challenge.Job]*issuedOnce{}}
		nonces := []challenge.Nonce{{}}
		owner := rapid.SampledFrom([]string{"alice", "bob"})
		aJob := rapid.Custom(func(r *rapid.T) challenge.Job { return challenge.Job{rapid.Byte().Draw(r, "job") % 3} })
		r.Repeat(map[string]func(*rapid.T){
			"issue": func(r *rapid.T) {
				p := challenge.IssueParams{
					Scope: storetest.Scope, Owner: owner.Draw(r, "owner"), Job: aJob.Draw(r, "job"),
					TTL: time.Duration(rapid.IntRange(1, 1200).Draw(r, "ttl")) * time.Second, Supersede: rapid.Bool().Draw(r, "supersede"),
				}
				want := m.issue(p, f.Clock.Now())
				i, err := c.Issue(t.Context(), p)
				if !errors.Is(err, want) {
					r.Fatalf("issue: %v, want %v", err, want)
				}
				if err == nil {
					m.jobs[p.Job] = &issuedOnce{Issued: i, owner: p.Owner}
					nonces = append(nonces, i.Nonce)
				}
			},
			"consume": func(r *rapid.T) {
				p := challenge.ConsumeParams{
					Scope: storetest.Scope, Owner: owner.Draw(r, "owner"), Job: aJob.Draw(r, "job"),
					Nonce: rapid.SampledFrom(nonces).Draw(r, "nonce"), Epoch: m.epoch + uint64(rapid.IntRange(0, 1).Draw(r, "ahead")),
				}
				if i := m.jobs[p.Job]; i != nil && rapid.Bool().Draw(r, "right") {
					p.Nonce, p.Owner = i.Nonce, i.owner
				}
				now := f.Clock.Now()
				want := m.consume(p, now)
				_, err := c.Consume(t.Context(), p)
				if i := m.jobs[p.Job]; i != nil && errors.Is(err, challenge.ErrUnknownJob) && gone(i, now) {
					return
				}
				if i := m.jobs[p.Job]; errors.Is(err, challenge.ErrAlreadyConsumed) && i != nil && i.owner == p.Owner && !i.consumed.IsZero() {
					return // the marker is over, but not swept yet
				}
				if !errors.Is(err, want) {
					r.Fatalf("consume: %v, want %v", err, want)
				}
				if err == nil {
					i := m.jobs[p.Job]
					i.consumed, i.marker = now, now.Add(time.Hour)
				}
			},
			"advance": func(r *rapid.T) {
				from := m.epoch - uint64(rapid.IntRange(0, 1).Draw(r, "behind"))
				e, err := c.AdvanceEpoch(t.Context(), challenge.AdvanceParams{Scope: storetest.Scope, From: max(from, 1)})
				if max(from, 1) != m.epoch {
					if !errors.Is(err, challenge.ErrEpochConflict) {
						r.Fatalf("advance from %d: %v", from, err)
					}
					return
				}
				if m.epoch++; err != nil || e.Epoch != m.epoch {
					r.Fatalf("advance: %+v, %v, want %d", e, err, m.epoch)
				}
			},
			"wait": func(r *rapid.T) {
				f.Clock.Advance(time.Duration(rapid.IntRange(1, 1800).Draw(r, "seconds")) * time.Second)
			},
			"sweep": func(r *rapid.T) {
				if _, err := f.Sweep(t.Context()); err != nil {
					r.Fatal(err)
				}
			},
		})
	})
}

// gone reports whether a sweeper may have deleted what is left of a challenge.
func gone(i *issuedOnce, now time.Time) bool {
	end := i.ExpiresAt
	if !i.consumed.IsZero() {
		end = i.marker
	}
	return !now.Before(end.Add(5 * time.Minute))
}
