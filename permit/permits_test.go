package permit_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// issuing is a fixture with permits on its store and a keyring for them.
type issuing struct {
	*storetest.Fixture
	*permit.Permits
	keys *keyring.Keyring
	t    testing.TB
}

// onEach runs a test on every engine.
func onEach(t *testing.T, test func(t *testing.T, f *issuing)) {
	t.Helper()
	t.Parallel()
	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) { test(t, newIssuing(t, f)) })
}

func newIssuing(t testing.TB, f *storetest.Fixture) *issuing {
	t.Helper()
	keys, err := keyring.NewMemory(keyring.Options{Clock: f.Clock, Entropy: entropy.Seeded(5)}, storetest.Scope, "elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	return &issuing{Fixture: f, Permits: permit.New(f.Store, keys, permit.Options{}), keys: keys, t: t}
}

func (f *issuing) reopen() {
	f.Reopen()
	f.Permits = permit.New(f.Store, f.keys, permit.Options{})
}

var theCall = permit.Expected{
	Subject: "agent-7", Capability: "cap-files", Server: "files", Tool: "read", RequestID: "req-1", ParameterHash: strings.Repeat("ab", 32),
}

func mintParams() permit.MintParams { return permit.MintParams{Scope: storetest.Scope, Call: theCall} }

func (f *issuing) mint(change ...func(*permit.MintParams)) []byte {
	f.t.Helper()
	p := mintParams()
	for _, c := range change {
		c(&p)
	}
	m, err := f.Mint(context.Background(), p)
	if err != nil {
		f.t.Fatalf("mint: %v", err)
	}
	return m.Permit
}

// signs a nonce with the scope's own key, whatever it says.
func (f *issuing) signs(n permit.Nonce) []byte {
	f.t.Helper()
	key, err := f.keys.SigningKey(storetest.Scope)
	if err != nil {
		f.t.Fatal(err)
	}
	p, err := permit.Sign(key, n)
	if err != nil {
		f.t.Fatal(err)
	}
	return permit.Encode(p)
}

func (f *issuing) nonce() permit.Nonce {
	now := f.Clock.Now().Unix()
	return permit.Nonce{ID: "n-1", IssuedAt: now, ExpiresAt: now + 30, BoundTo: permit.Binding{
		SubjectID: theCall.Subject, RequestID: theCall.RequestID, CapabilityID: theCall.Capability,
		ToolServer: theCall.Server, ToolName: theCall.Tool, ParameterHash: theCall.ParameterHash,
	}}
}

func useOf(wire []byte) permit.UseParams {
	return permit.UseParams{Scope: storetest.Scope, Owner: "worker", Permit: wire, Expected: theCall}
}

func (f *issuing) consumes(wire []byte) permit.Consumed {
	f.t.Helper()
	c, err := f.Consume(context.Background(), useOf(wire))
	if err != nil {
		f.t.Fatalf("consume: %v", err)
	}
	return c
}

func (f *issuing) checks(wire []byte) error {
	_, err := f.Check(context.Background(), permit.CheckParams{Scope: storetest.Scope, Permit: wire, Expected: theCall})
	return err
}

// refuses wants consume and check to refuse alike, and nothing to be written.
func (f *issuing) refuses(want error, u permit.UseParams) {
	f.t.Helper()
	before := f.versions()
	_, err := f.Consume(context.Background(), u)
	_, checked := f.Check(context.Background(), permit.CheckParams{Scope: u.Scope, Permit: u.Permit, Expected: u.Expected})
	if !errors.Is(fmt.Errorf("while calling: %w", err), want) || !errors.Is(checked, want) {
		f.t.Errorf("consume: %v, check: %v; want %v", err, checked, want)
	}
	if after := f.versions(); !sameVersions(before, after) {
		f.t.Errorf("a refusal wrote: %d records before, %d after", len(before), len(after))
	}
}

func (f *issuing) versions() map[state.Key]state.Version {
	f.t.Helper()
	all := map[state.Key]state.Version{}
	for _, kind := range state.Kinds() {
		page, _, err := f.Engine.Scan(context.Background(), storetest.Scope, kind, "", "", 500)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, found := range page {
			all[found.Key] = found.Item.Version
		}
	}
	return all
}

func sameVersions(a, b map[state.Key]state.Version) bool {
	for key, version := range a {
		if b[key] != version {
			return false
		}
	}
	return len(a) == len(b)
}

func (f *issuing) markers() []store.Entry {
	f.t.Helper()
	page, _, err := f.Scan(context.Background(), storetest.Scope, state.KindMarker, "", "", 500)
	if err != nil {
		f.t.Fatal(err)
	}
	return page
}

func wants(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func TestMintThenVerify(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		f.Clock.Advance(250 * time.Millisecond)
		before := f.versions()
		m, err := f.Mint(t.Context(), mintParams())
		if err != nil {
			t.Fatal(err)
		}
		p, err := permit.Decode(m.Permit)
		if err != nil {
			t.Fatal(err)
		}
		n, start := p.Nonce, storetest.Start.Unix()
		if n.IssuedAt != start || n.ExpiresAt != start+31 || m.NonceID != n.ID || !m.ExpiresAt.Equal(time.Unix(start+31, 0)) || m.HoldID != "" {
			t.Fatalf("minted %+v: %+v", m, n)
		}
		if err := f.checks(m.Permit); err != nil {
			t.Fatal(err)
		}
		if !sameVersions(before, f.versions()) {
			t.Fatal("minting and checking wrote something")
		}
		c := f.consumes(m.Permit)
		if want := (permit.Used{NonceID: n.ID, ExpiresAt: m.ExpiresAt}); c.Used != want || c.Token.IsZero() {
			t.Fatalf("consumed %+v, want %+v", c, want)
		}
		if len(f.markers()) != 1 {
			t.Fatalf("%d markers, want 1", len(f.markers()))
		}
	})
}

func TestStaleRefused(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		wire := f.mint()
		f.Clock.Advance(30*time.Second - time.Millisecond)
		if err := f.checks(wire); err != nil {
			t.Fatal(err)
		}
		f.Clock.Advance(time.Millisecond)
		f.refuses(permit.ErrExpired, useOf(wire))
	})
}

func TestNotYetValidRefused(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		n := f.nonce()
		n.IssuedAt += 6
		f.refuses(permit.ErrNotYetValid, useOf(f.signs(n)))
		f.Clock.Advance(time.Second) // within the skew now
		f.consumes(f.signs(n))
	})
}

// A permit that was good when it was verified may be over when the batch is decided.
func TestExpiryIsCheckedAgainAtReservationAndAnExpiredOneIsNotReserved(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		u := useOf(f.mint())
		u.Token = state.Token{1}
		part, err := f.Use(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		f.Clock.Advance(30 * time.Second)
		out, err := f.Do(t.Context(), &state.Batch{Scope: storetest.Scope, Ops: part.Ops})
		if err != nil {
			t.Fatal(err)
		}
		_, err = part.Read(&out, 0)
		wants(t, err, permit.ErrExpired)
		if len(f.markers()) != 0 {
			t.Fatal("an expired permit was reserved")
		}
	})
}

func TestReplayRefused(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		wire := f.mint()
		f.consumes(wire)
		f.refuses(permit.ErrReplayed, useOf(wire))
		other := useOf(wire)
		other.Owner = "somebody"
		f.refuses(permit.ErrReplayed, other)
		f.reopen()
		f.refuses(permit.ErrReplayed, useOf(wire))
	})
}

func TestANonceWithoutRequestIDRefused(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		p := mintParams()
		p.Call.RequestID = ""
		_, err := f.Mint(t.Context(), p)
		wants(t, err, permit.ErrInvalid)

		n := f.nonce()
		n.BoundTo.RequestID = ""
		u := useOf(f.signs(n))
		f.refuses(permit.ErrBindingMismatch, u)
		u.Expected.RequestID = "" // an empty field never matches
		f.refuses(permit.ErrBindingMismatch, u)

		without := strings.Replace(string(f.mint()), `"request_id":"req-1",`, "", 1)
		f.refuses(permit.ErrMalformed, useOf([]byte(without)))
	})
}

func TestEachBindingFieldMismatchedIsRefusedByNameAndConsumesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		wire := f.mint()
		for field, change := range map[permit.Field]func(*permit.Expected){
			permit.FieldSubject:       func(e *permit.Expected) { e.Subject = "agent-8" },
			permit.FieldCapability:    func(e *permit.Expected) { e.Capability += "x" },
			permit.FieldServer:        func(e *permit.Expected) { e.Server = "FILES" },
			permit.FieldTool:          func(e *permit.Expected) { e.Tool = "write" },
			permit.FieldRequestID:     func(e *permit.Expected) { e.RequestID = "req-2" },
			permit.FieldParameterHash: func(e *permit.Expected) { e.ParameterHash = strings.Repeat("cd", 32) },
		} {
			u := useOf(wire)
			change(&u.Expected)
			f.refuses(permit.ErrBindingMismatch, u)
			_, err := f.Consume(t.Context(), u)
			var mismatch *permit.BindingMismatchError
			if !errors.As(err, &mismatch) || mismatch.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		f.consumes(wire)
	})
}

func TestTamperedSignatureRefusedAndConsumesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		p, err := permit.Decode(f.mint())
		if err != nil {
			t.Fatal(err)
		}
		for at := range p.Signature {
			tampered := p
			tampered.Signature[at] ^= 1
			_, err := f.Consume(t.Context(), useOf(permit.Encode(tampered)))
			wants(t, err, permit.ErrInvalidSignature)
		}
		tampered := p
		tampered.Nonce.ExpiresAt += 60
		f.refuses(permit.ErrInvalidSignature, useOf(permit.Encode(tampered)))
		f.consumes(permit.Encode(p))
	})
}

func TestReserveOncePerID(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		first, second := f.mint(), f.mint()
		f.consumes(first)
		f.consumes(second) // two mints are two permits
		n := f.nonce()
		f.consumes(f.signs(n))
		n.ExpiresAt++ // another nonce under an id that was used
		f.refuses(permit.ErrReplayed, useOf(f.signs(n)))
		n.ID = "n-2"
		f.consumes(f.signs(n))
	})
}

// The default TTL is 30 s; a permit that lives an hour is remembered for an hour, through sweeps and a restart.
func TestRetentionIsAtLeastToTheSignedExpiryEvenWithAShorterLocalTTL(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		long := f.mint(func(p *permit.MintParams) { p.TTL = permit.MaxTTL })
		f.consumes(long)
		for range 59 {
			f.Clock.Advance(time.Minute)
			if _, err := f.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.refuses(permit.ErrReplayed, useOf(long))
		}
		f.reopen()
		f.Clock.Advance(time.Minute - time.Millisecond)
		f.refuses(permit.ErrReplayed, useOf(long))
		f.Clock.Advance(time.Millisecond)
		f.refuses(permit.ErrExpired, useOf(long)) // and never free
		if len(f.markers()) != 1 {
			t.Fatal("the marker went with its permit: a small step of the clock would free it")
		}
		f.Clock.Advance(10 * time.Minute)
		if _, err := f.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(f.markers()) != 0 {
			t.Fatal("markers pile up")
		}
		f.refuses(permit.ErrExpired, useOf(long))
	})
}

func TestCapacityExhaustedRefusesAndKeepsLiveMarkers(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		f.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 4, 3 })
		var used [][]byte
		for range 3 {
			used = append(used, f.mint())
			f.consumes(used[len(used)-1])
		}
		fresh := f.mint()
		_, err := f.Consume(t.Context(), useOf(fresh))
		wants(t, err, permit.ErrOwnerFull)
		wants(t, err, state.ErrOwnerFull)
		other := useOf(fresh)
		other.Owner = "somebody"
		if _, err := f.Consume(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		used = append(used, fresh)
		other.Permit = f.mint()
		_, err = f.Consume(t.Context(), other)
		wants(t, err, permit.ErrFull)
		wants(t, err, state.ErrFull)
		for _, wire := range used {
			_, err := f.Consume(t.Context(), useOf(wire))
			wants(t, err, permit.ErrReplayed)
		}
		if err := f.checks(other.Permit); err != nil {
			t.Fatalf("a permit that met a full store was used: %v", err)
		}
		// What is over makes room by itself: nothing live is given up for it.
		f.Clock.Advance(10 * time.Minute)
		f.consumes(f.mint())
	})
}

func TestRetentionOverflowRefused(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		n := f.nonce()
		n.IssuedAt, n.ExpiresAt = 1<<53-2, 1<<53-1
		f.refuses(permit.ErrNotYetValid, useOf(f.signs(n)))
		n.IssuedAt, n.ExpiresAt = f.Clock.Now().Unix(), f.Clock.Now().Unix()+3602
		priv, _ := otherKey(1)
		if _, err := permit.Sign(priv, n); !errors.Is(err, permit.ErrInvalid) {
			t.Fatalf("a window of more than an hour was signed: %v", err)
		}
		n.ExpiresAt = 1<<63 - 1
		if _, err := permit.Sign(priv, n); !errors.Is(err, permit.ErrInvalid) {
			t.Fatalf("an expiry that overflows was signed: %v", err)
		}
		wire := strings.Replace(string(f.mint()), fmt.Sprintf(`"expires_at":%d`, storetest.Start.Unix()+30), `"expires_at":9007199254740991`, 1)
		f.refuses(permit.ErrMalformed, useOf([]byte(wire)))
	})
}

// Many callers, each with permits of its own and all with one in common, through two stores: everybody is answered, and
// each permit is granted once.
func TestManyThreadsDoNotStall(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		const threads, each = 64, 8
		shared := f.mint()
		own := make([][][]byte, threads)
		for n := range own {
			for range each {
				own[n] = append(own[n], f.mint())
			}
		}
		both := []*permit.Permits{f.Permits, permit.New(f.Second(), f.keys, permit.Options{})}
		granted := make([]int, threads)
		var start, done sync.WaitGroup
		start.Add(1)
		for n := range threads {
			done.Go(func() {
				start.Wait()
				permits := both[n%2]
				for _, wire := range own[n] {
					if _, err := permits.Consume(ctx, useOf(wire)); err != nil {
						t.Errorf("thread %d: %v", n, err)
					}
					switch _, err := permits.Consume(ctx, useOf(shared)); {
					case err == nil:
						granted[n]++
					case !errors.Is(err, permit.ErrReplayed):
						t.Errorf("thread %d, the shared permit: %v", n, err)
					}
				}
			})
		}
		start.Done()
		done.Wait()
		sum := 0
		for _, n := range granted {
			sum += n
		}
		if sum != 1 {
			t.Fatalf("the shared permit was granted %d times", sum)
		}
		for _, wire := range slices.Concat(own...) {
			_, err := f.Consume(ctx, useOf(wire))
			wants(t, err, permit.ErrReplayed)
		}
	})
}

func TestConsumeAgainWithItsTokenGivesTheSameAnswer(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		u := useOf(f.mint())
		u.Token = state.Token{8}
		first, err := f.Consume(t.Context(), u)
		if err != nil || first.Repeated || first.Token != u.Token {
			t.Fatalf("%+v, %v", first, err)
		}
		first.Repeated = true
		f.reopen()
		f.Clock.Advance(7 * time.Second)
		if _, err := f.Revoke(t.Context(), permit.RevokeParams{Scope: storetest.Scope}); err != nil {
			t.Fatal(err) // what was granted before stays granted
		}
		for range 2 {
			if again, err := f.Consume(t.Context(), u); err != nil || again != first {
				t.Fatalf("again: %+v, %v; want %+v", again, err, first)
			}
		}
		stranger := u
		stranger.Owner = "somebody"
		_, err = f.Consume(t.Context(), stranger)
		wants(t, err, permit.ErrReplayed)
		f.Clock.Advance(time.Minute)
		_, err = f.Consume(t.Context(), u)
		wants(t, err, permit.ErrExpired)
	})
}

func TestATokenThatUsedAnotherPermitOfTheSameIDIsNoRepetition(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		n := f.nonce()
		u := useOf(f.signs(n))
		u.Token = state.Token{8}
		if _, err := f.Consume(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		n.ExpiresAt++
		u.Permit = f.signs(n)
		_, err := f.Consume(t.Context(), u)
		wants(t, err, permit.ErrReplayed)
	})
}

func TestRevocationByScopeSubjectCapabilityAndPair(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		subject, capability string
		hits                bool
	}{
		{"the scope", "", "", true},
		{"the subject", theCall.Subject, "", true},
		{"the capability", "", theCall.Capability, true},
		{"the pair", theCall.Subject, theCall.Capability, true},
		{"another subject", "agent-8", "", false},
		{"another capability", "", "cap", false},
		{"the subject with another capability", theCall.Subject, "cap", false},
		{"the capability of another subject", "agent-8", theCall.Capability, false},
		{"a pair that is spelled alike", theCall.Subject + theCall.Capability[:1], theCall.Capability[1:], false},
		{"a subject named like the capability", theCall.Capability, "", false},
		{"a capability named like the subject", "", theCall.Subject, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, f *issuing) {
				f.Clock.Advance(300 * time.Millisecond)
				minute := func(p *permit.MintParams) { p.TTL = time.Minute }
				wire, used := f.mint(minute), useOf(f.mint(minute))
				used.Token = state.Token{4}
				if _, err := f.Consume(t.Context(), used); err != nil {
					t.Fatal(err)
				}
				n := f.nonce() // of an issuer whose clock is ahead by the skew
				n.IssuedAt, n.ExpiresAt = n.IssuedAt+5, n.ExpiresAt+5
				ahead := f.signs(n)
				r, err := f.Revoke(t.Context(), permit.RevokeParams{Scope: storetest.Scope, Subject: c.subject, Capability: c.capability})
				if want := storetest.Start.Add(6 * time.Second); err != nil || !r.Floor.Equal(want) {
					t.Fatalf("floor %v, %v; want %v", r.Floor, err, want)
				}
				f.reopen()
				if !c.hits {
					f.consumes(wire)
					f.consumes(ahead)
					f.mint()
					return
				}
				f.refuses(permit.ErrRevoked, useOf(wire))
				f.refuses(permit.ErrRevoked, useOf(ahead))
				f.refuses(permit.ErrReplayed, permit.UseParams{Scope: used.Scope, Owner: used.Owner, Permit: used.Permit, Expected: used.Expected})

				// Until the floor has passed nothing is minted, and the refusal says for how long.
				_, err = f.Mint(t.Context(), mintParams())
				var e *permit.Error
				if !errors.As(err, &e) || e.Reason != permit.ReasonRevoked || e.RetryAfter != 6700*time.Millisecond {
					t.Fatalf("mint: %v", err)
				}
				f.Clock.Advance(e.RetryAfter - time.Millisecond)
				_, err = f.Mint(t.Context(), mintParams())
				wants(t, err, permit.ErrRevoked)
				f.Clock.Advance(time.Millisecond)
				f.consumes(f.mint())
				f.refuses(permit.ErrRevoked, useOf(wire))
			})
		})
	}
}

func TestARevocationNeverLowersAFloor(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		var last time.Time
		for range 5 {
			r, err := f.Revoke(t.Context(), permit.RevokeParams{Scope: storetest.Scope, Subject: "a"})
			if err != nil || r.Floor.Before(last) {
				t.Fatalf("floor %v after %v, %v", r.Floor, last, err)
			}
			last = r.Floor
			f.Clock.Advance(700 * time.Millisecond)
		}
		f.Clock.Step(-time.Minute) // absorbed: the store's time does not go back
		if r, err := f.Revoke(t.Context(), permit.RevokeParams{Scope: storetest.Scope, Subject: "a"}); err != nil || r.Floor.Before(last) {
			t.Fatalf("floor %v after %v, %v", r.Floor, last, err)
		}
	})
}

// A floor that a recovery raised refuses what was issued before; what is issued after works in quarantine too.
func TestInQuarantinePermitsIssuedAfterTheFloorWork(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		before := f.mint(func(p *permit.MintParams) { p.TTL = time.Minute })
		err := f.ChangeScope(t.Context(), storetest.Scope, func(s *state.Scope, now int64) error {
			s.Floor = (now + state.Skew + 999) / 1000 * 1000
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		f.Quarantine()
		f.refuses(permit.ErrRevoked, useOf(before))
		f.Clock.Advance(10 * time.Second)
		after := f.mint()
		if err := f.checks(after); err != nil {
			t.Fatal(err)
		}
		f.consumes(after)
	})
}

func TestADamagedMarkerOrFloorIsNotFree(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		wire := f.mint(func(p *permit.MintParams) { p.TTL = time.Hour })
		f.consumes(wire)
		f.Damage(f.markers()[0].Key)
		f.refuses(state.ErrCorrupt, useOf(wire))
		f.Clock.Advance(20 * time.Minute)
		if _, err := f.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.refuses(state.ErrCorrupt, useOf(wire))

		if _, err := f.Revoke(t.Context(), permit.RevokeParams{Scope: storetest.Scope, Subject: theCall.Subject}); err != nil {
			t.Fatal(err)
		}
		f.Clock.Advance(10 * time.Second)
		fresh := f.mint()
		page, _, err := f.Scan(t.Context(), storetest.Scope, state.KindFloor, "", "", 10)
		if err != nil || len(page) != 1 {
			t.Fatal(len(page), err)
		}
		f.Damage(page[0].Key)
		f.refuses(state.ErrCorrupt, useOf(fresh))
		_, err = f.Mint(t.Context(), mintParams())
		wants(t, err, state.ErrCorrupt)
	})
}

func TestAPermitIsOfItsScope(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		for _, scope := range []string{"elsewhere", "without-keys"} {
			if err := f.CreateScope(t.Context(), scope); err != nil {
				t.Fatal(err)
			}
		}
		u := useOf(f.mint())
		u.Scope = "elsewhere"
		_, err := f.Consume(t.Context(), u)
		wants(t, err, permit.ErrInvalidSignature)
		u.Scope = "without-keys"
		_, err = f.Consume(t.Context(), u)
		wants(t, err, permit.ErrInvalidSignature)
		p := mintParams()
		p.Scope = "without-keys"
		_, err = f.Mint(t.Context(), p)
		wants(t, err, keyring.ErrNoSigningKey)
		p.Scope = "nowhere"
		_, err = f.Mint(t.Context(), p)
		wants(t, err, state.ErrNoScope)
		p.Scope = "elsewhere"
		m, err := f.Mint(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		u.Scope, u.Permit = "elsewhere", m.Permit
		if _, err := f.Consume(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	})
}

// Keys change while permits are in use: the answer follows at once.
func TestKeysAreFollowedAsTheyChange(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		priv, pub := otherKey(77)
		foreign, err := permit.Sign(priv, f.nonce())
		if err != nil {
			t.Fatal(err)
		}
		wire := permit.Encode(foreign)
		f.refuses(permit.ErrInvalidSignature, useOf(wire))
		if _, err := f.keys.Trust(t.Context(), storetest.Scope, pub[:]); err != nil {
			t.Fatal(err)
		}
		if err := f.checks(wire); err != nil {
			t.Fatal(err)
		}
		f.consumes(f.signs(f.nonce())) // the same nonce id of another issuer is another permit
		f.consumes(wire)
		if err := f.keys.Retire(t.Context(), storetest.Scope, pub[:]); err != nil {
			t.Fatal(err)
		}
		f.refuses(permit.ErrInvalidSignature, useOf(wire))
	})
}

func TestAHoldComesWithItsPermit(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		p := mintParams()
		p.HoldID = "hold-1"
		_, err := f.Mint(t.Context(), p)
		wants(t, err, permit.ErrInvalid)
		part, err := f.MintPart(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		hold := state.Claim{
			Key: state.Key{Scope: storetest.Scope, Kind: state.KindHold, ID: p.HoldID}, Owner: "worker", Token: part.HoldToken,
			State: state.Pending, Expires: part.ExpiresAt.UnixMilli(), Body: part.Permit,
		}
		out, err := f.Do(t.Context(), &state.Batch{Scope: storetest.Scope, Ops: append([]state.Op{hold}, part.Ops...)})
		if err != nil {
			t.Fatal(err)
		}
		m, err := part.Read(&out, 1)
		if err != nil || m.HoldID != p.HoldID {
			t.Fatalf("%+v, %v", m, err)
		}
		if again, err := permit.Remint(out.Anchor.Body); err != nil || again.NonceID != m.NonceID || string(again.Permit) != string(m.Permit) || again.ExpiresAt != m.ExpiresAt || again.HoldID != m.HoldID {
			t.Fatalf("minted again: %+v, %v", again, err)
		}
		u := useOf(m.Permit)
		u.Token = state.Token{6}
		use, err := f.Use(t.Context(), u)
		if err != nil || use.Hold == nil || *use.Hold != (permit.Hold{ID: p.HoldID, Token: part.HoldToken}) {
			t.Fatalf("%+v, %v", use, err)
		}
		c, err := f.Check(t.Context(), permit.CheckParams{Scope: u.Scope, Permit: u.Permit, Expected: u.Expected})
		if err != nil || c.Hold == nil || *c.Hold != *use.Hold || c.NonceID != m.NonceID {
			t.Fatalf("%+v, %v", c, err)
		}
		before := f.versions()
		_, err = f.Consume(t.Context(), u) // it must be fenced in the same step
		wants(t, err, permit.ErrInvalid)
		if !sameVersions(before, f.versions()) {
			t.Fatal("a permit was used without its hold")
		}
	})
}

func TestAMintWithAHoldIsRefusedWhileAFloorLiesAhead(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		if _, err := f.Revoke(t.Context(), permit.RevokeParams{Scope: storetest.Scope, Capability: theCall.Capability}); err != nil {
			t.Fatal(err)
		}
		p := mintParams()
		p.HoldID = "hold-1"
		part, err := f.MintPart(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		hold := state.Claim{Key: state.Key{Scope: storetest.Scope, Kind: state.KindHold, ID: "hold-1"}, Token: part.HoldToken, State: state.Pending}
		out, err := f.Do(t.Context(), &state.Batch{Scope: storetest.Scope, Ops: append([]state.Op{hold}, part.Ops...)})
		if err != nil {
			t.Fatal(err)
		}
		m, err := part.Read(&out, 1)
		wants(t, err, permit.ErrRevoked)
		if m.Permit != nil {
			t.Fatal("a refused permit was given away")
		}
		wants(t, part.Refusal(&out, 1), permit.ErrRevoked)
	})
}

func TestAKeptPermitThatDoesNotDecodeIsCorrupt(t *testing.T) {
	t.Parallel()
	for _, wire := range []string{"", "{}", `{"nonce":{}}`} {
		_, err := permit.Remint([]byte(wire))
		wants(t, err, state.ErrCorrupt)
	}
}

// A part reads its own ops only, and never says yes for a batch that was refused.
func TestAPartReadsItsOwnAnswer(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		u := useOf(f.mint())
		u.Token = state.Token{6}
		part, err := f.Use(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		intent := state.Claim{Key: state.Key{Scope: storetest.Scope, Kind: state.KindOperation, ID: "op"}, Token: u.Token, State: state.Pending}
		ops := append([]state.Op{intent}, part.Ops...)
		out, err := f.Do(t.Context(), &state.Batch{Scope: storetest.Scope, Ops: append(slices.Clone(ops), state.Refuse{Reason: state.NotHolder})})
		if err != nil {
			t.Fatal(err)
		}
		if err := part.Refusal(&out, 1); err != nil {
			t.Fatalf("another's refusal is the permit's: %v", err)
		}
		if used, err := part.Read(&out, 1); err == nil || used.NonceID != "" {
			t.Fatalf("a refused batch gave %+v", used)
		}
		out, err = f.Do(t.Context(), &state.Batch{Scope: storetest.Scope, Ops: ops})
		if err != nil {
			t.Fatal(err)
		}
		if used, err := part.Read(&out, 1); err != nil || used.Repeated {
			t.Fatalf("%+v, %v", used, err)
		}
		out, err = f.Do(t.Context(), &state.Batch{Scope: storetest.Scope, Ops: ops})
		if err != nil {
			t.Fatal(err)
		}
		if used, err := part.Read(&out, 1); err != nil || !used.Repeated {
			t.Fatalf("%+v, %v", used, err)
		}
		intent.Key.ID, intent.Token = "another", state.Token{7}
		ops[0] = intent
		out, err = f.Do(t.Context(), &state.Batch{Scope: storetest.Scope, Ops: ops})
		if err != nil {
			t.Fatal(err)
		}
		_, err = part.Read(&out, 1)
		wants(t, err, permit.ErrReplayed)
	})
}

func TestARefusedBatchForWantOfRoomNamesTheKindThatIsFull(t *testing.T) {
	onEach(t, func(t *testing.T, f *issuing) {
		f.Caps(func(c *state.Caps) { c.Live = 1 })
		claim := state.Claim{Key: state.Key{Scope: storetest.Scope, Kind: state.KindOperation, ID: "first"}, Token: state.Token{1}, State: state.Pending}
		if out, err := f.Do(t.Context(), &state.Batch{Scope: storetest.Scope, Ops: []state.Op{claim}}); err != nil || !out.Applied {
			t.Fatal(out, err)
		}
		u := useOf(f.mint())
		u.Token = state.Token{6}
		part, err := f.Use(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		claim.Key.ID = "second"
		out, err := f.Do(t.Context(), &state.Batch{Scope: storetest.Scope, Ops: append([]state.Op{claim}, part.Ops...)})
		if err != nil {
			t.Fatal(err)
		}
		if err := part.Refusal(&out, 1); err != nil {
			t.Fatalf("the operations are full, not the permits: %v", err)
		}
	})
}

func TestWhatIsNeverAcceptedIsInvalid(t *testing.T) {
	t.Parallel()
	f := newIssuing(t, storetest.Memory(t))
	long := strings.Repeat("x", 257)
	for name, change := range map[string]func(*permit.MintParams){
		"no scope":            func(p *permit.MintParams) { p.Scope = "" },
		"the store's scope":   func(p *permit.MintParams) { p.Scope = state.StoreScope },
		"no subject":          func(p *permit.MintParams) { p.Call.Subject = "" },
		"a long tool":         func(p *permit.MintParams) { p.Call.Tool = long },
		"a hash in upper":     func(p *permit.MintParams) { p.Call.ParameterHash = strings.Repeat("AB", 32) },
		"half a second":       func(p *permit.MintParams) { p.TTL = time.Second / 2 },
		"a second and a half": func(p *permit.MintParams) { p.TTL = 3 * time.Second / 2 },
		"a negative TTL":      func(p *permit.MintParams) { p.TTL = -time.Second },
		"more than an hour":   func(p *permit.MintParams) { p.TTL = time.Hour + time.Second },
	} {
		p := mintParams()
		change(&p)
		if _, err := f.Mint(t.Context(), p); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("mint with %s: %v", name, err)
		}
	}
	wire := f.mint()
	for name, change := range map[string]func(*permit.UseParams){
		"no scope":          func(u *permit.UseParams) { u.Scope = "" },
		"the store's scope": func(u *permit.UseParams) { u.Scope = state.StoreScope },
		"no owner":          func(u *permit.UseParams) { u.Owner = "" },
		"a long owner":      func(u *permit.UseParams) { u.Owner = long },
	} {
		u := useOf(wire)
		change(&u)
		if _, err := f.Consume(t.Context(), u); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("consume with %s: %v", name, err)
		}
	}
	_, err := f.Use(t.Context(), useOf(wire))
	wants(t, err, permit.ErrInvalid) // a part needs a token
	_, err = f.Check(t.Context(), permit.CheckParams{Permit: wire, Expected: theCall})
	wants(t, err, permit.ErrInvalid)
	for _, r := range []permit.RevokeParams{
		{}, {Scope: state.StoreScope}, {Scope: storetest.Scope, Subject: long}, {Scope: storetest.Scope, Capability: "a\x00"},
	} {
		if _, err := f.Revoke(t.Context(), r); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("revoke %+v: %v", r, err)
		}
	}
	// A foreign permit whose names are too long for a floor cannot be revoked, so that it is not accepted.
	n := f.nonce()
	n.BoundTo.SubjectID = strings.Repeat("s", 1100)
	u := useOf(f.signs(n))
	u.Expected.Subject = n.BoundTo.SubjectID
	f.refuses(permit.ErrInvalid, u)
	n.BoundTo.SubjectID = strings.Repeat("s", 600)
	u = useOf(f.signs(n))
	u.Expected.Subject = n.BoundTo.SubjectID
	if _, err := f.Consume(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}

func TestAMissingScopeIsAnError(t *testing.T) {
	t.Parallel()
	f := newIssuing(t, storetest.Memory(t))
	p := mintParams()
	p.Scope = "elsewhere" // it has keys, but was never created
	_, err := f.Mint(t.Context(), p)
	wants(t, err, state.ErrNoScope)
	_, err = f.Revoke(t.Context(), permit.RevokeParams{Scope: "elsewhere"})
	wants(t, err, state.ErrNoScope)
}

func TestMintDigestTellsRequestsApart(t *testing.T) {
	t.Parallel()
	seen := map[state.Digest]string{}
	for name, change := range map[string]func(*permit.MintParams){
		"as it is":       func(*permit.MintParams) {},
		"subject":        func(p *permit.MintParams) { p.Call.Subject += "x" },
		"capability":     func(p *permit.MintParams) { p.Call.Capability += "x" },
		"server":         func(p *permit.MintParams) { p.Call.Server += "x" },
		"tool":           func(p *permit.MintParams) { p.Call.Tool += "x" },
		"request_id":     func(p *permit.MintParams) { p.Call.RequestID += "x" },
		"parameter_hash": func(p *permit.MintParams) { p.Call.ParameterHash = strings.Repeat("0", 64) },
		"ttl":            func(p *permit.MintParams) { p.TTL = time.Second },
		"moved": func(p *permit.MintParams) {
			p.Call.Server, p.Call.Tool = p.Call.Server+p.Call.Tool[:1], p.Call.Tool[1:]
		},
	} {
		p := mintParams()
		change(&p)
		if other, ok := seen[p.Digest()]; ok {
			t.Errorf("%s and %s are the same request", name, other)
		}
		seen[p.Digest()] = name
	}
	p := mintParams()
	p.TTL, p.HoldID = permit.DefaultTTL, "hold"
	if seen[p.Digest()] != "as it is" {
		t.Error("the default TTL, spelled out, is another request")
	}
}

// A permit is public; its private key never is part of an error.
func TestErrorsCarryNoSecret(t *testing.T) {
	t.Parallel()
	f := newIssuing(t, storetest.Memory(t))
	key, err := f.keys.SigningKey(storetest.Scope)
	if err != nil {
		t.Fatal(err)
	}
	u := useOf(f.mint())
	u.Token = state.Token{0xde, 0xad, 0xbe, 0xef}
	if _, err := f.Consume(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*permit.UseParams){
		func(u *permit.UseParams) { u.Token[0]++ },
		func(u *permit.UseParams) { u.Expected.Tool = "another-tool" },
		func(u *permit.UseParams) { u.Permit = u.Permit[:200] },
	} {
		v := u
		change(&v)
		_, err := f.Consume(t.Context(), v)
		if err == nil {
			t.Fatal("accepted")
		}
		for _, secret := range []string{fmt.Sprintf("%x", u.Token[:4]), fmt.Sprintf("%x", key.Seed()), "another-tool", "agent-7"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q shows %q", err, secret)
			}
		}
	}
}

var _ permit.Keyring = (*keyring.Keyring)(nil)

// oddKeyring gives keys that no real keyring does.
type oddKeyring struct{ accepted []ed25519.PublicKey }

func (k oddKeyring) SigningKey(string) (ed25519.PrivateKey, error) { return make([]byte, 3), nil }
func (k oddKeyring) Accepted(string) []ed25519.PublicKey           { return k.accepted }

func TestAKeyThatTakesAnothersPlaceIsNoticed(t *testing.T) {
	t.Parallel()
	f := newIssuing(t, storetest.Memory(t))
	_, other := otherKey(78)
	odd := &oddKeyring{accepted: f.keys.Accepted(storetest.Scope)}
	permits := permit.New(f.Store, odd, permit.Options{})
	wire := f.mint()
	check := func() error {
		_, err := permits.Check(t.Context(), permit.CheckParams{Scope: storetest.Scope, Permit: wire, Expected: theCall})
		return err
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	odd.accepted = []ed25519.PublicKey{other[:]}
	wants(t, check(), permit.ErrInvalidSignature)
	odd.accepted = f.keys.Accepted(storetest.Scope)
	if err := check(); err != nil {
		t.Fatal(err)
	}
}

func TestUnfitKeysAreRefusedAndNotBelieved(t *testing.T) {
	t.Parallel()
	f := newIssuing(t, storetest.Memory(t))
	wire := f.mint()
	identity := make(ed25519.PublicKey, 32)
	identity[0] = 1
	for name, keys := range map[string][]ed25519.PublicKey{
		"short":     {make(ed25519.PublicKey, 31)},
		"identity":  {identity},
		"too many":  make([]ed25519.PublicKey, permit.MaxKeys+1),
		"no key":    {nil},
		"one twice": {f.keys.Accepted(storetest.Scope)[0], f.keys.Accepted(storetest.Scope)[0]},
	} {
		odd := permit.New(f.Store, oddKeyring{keys}, permit.Options{})
		if _, err := odd.Consume(t.Context(), useOf(wire)); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := odd.Mint(t.Context(), mintParams()); !errors.Is(err, permit.ErrInvalid) {
			t.Errorf("mint: %v", err)
		}
	}
}
