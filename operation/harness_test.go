package operation_test

import (
	"errors"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

const scope = storetest.Scope

// subject is one fixture with the capability on it.
type subject struct {
	*storetest.Fixture
	*operation.Operations
	t *testing.T
}

// each runs test on every engine.
func each(t *testing.T, o operation.Options, test func(s *subject)) {
	t.Helper()
	t.Parallel()
	on(t, o, test)
}

// eachOutcome runs test on every engine for each outcome of a resolution.
func eachOutcome(t *testing.T, test func(s *subject, outcome operation.Outcome)) {
	t.Helper()
	t.Parallel()
	for _, outcome := range []operation.Outcome{operation.Happened, operation.DidNotHappen} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			on(t, operation.Options{}, func(s *subject) { test(s, outcome) })
		})
	}
}

func on(t *testing.T, o operation.Options, test func(s *subject)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) {
		test(&subject{f, operations(t, f.Store, o), t})
	})
}

func operations(t *testing.T, s *store.Store, o operation.Options) *operation.Operations {
	t.Helper()
	ops, err := operation.New(s, o)
	if err != nil {
		t.Fatalf("make operations: %v", err)
	}
	return ops
}

// restart reopens the store, as a new process does.
func (s *subject) restart(o operation.Options) {
	s.t.Helper()
	s.Reopen()
	s.Operations = operations(s.t, s.Store, o)
}

// fingerprint makes one that is different for each n.
func fingerprint(n byte) state.Digest { return state.Digest{0: n, 31: 1} }

func params(owner, key string) operation.ClaimParams {
	return operation.ClaimParams{Scope: scope, Owner: owner, Key: key, Fingerprint: fingerprint(1)}
}

func (s *subject) begin(owner, key string) (operation.Claimed, error) {
	s.t.Helper()
	return s.Begin(s.t.Context(), params(owner, key))
}

// mustExecute begins an operation that nobody holds.
func (s *subject) mustExecute(owner, key string) operation.Claimed {
	s.t.Helper()
	c, err := s.begin(owner, key)
	if err != nil || c.Answer != operation.Execute {
		s.t.Fatalf("begin of %s: %+v, %v, want execute", key, c, err)
	}
	return c
}

func receipt(text string) operation.Receipt {
	return operation.Receipt{Status: 200, ContentType: "text/plain", Body: []byte(text)}
}

func (s *subject) complete(owner string, c operation.Claimed, r operation.Receipt) (operation.Completed, error) {
	s.t.Helper()
	return s.Complete(s.t.Context(), operation.CompleteParams{Scope: scope, Owner: owner, ID: c.ID, Token: c.Token, Receipt: r})
}

func (s *subject) mustComplete(owner string, c operation.Claimed, r operation.Receipt) operation.Completed {
	s.t.Helper()
	done, err := s.complete(owner, c, r)
	if err != nil {
		s.t.Fatalf("complete: %v", err)
	}
	return done
}

func (s *subject) abort(c operation.Claimed) (operation.Dropped, error) {
	s.t.Helper()
	return s.Abort(s.t.Context(), operation.AbortParams{Scope: scope, Owner: "ann", ID: c.ID, Token: c.Token, Reason: "never sent"})
}

func (s *subject) resolve(id string, outcome operation.Outcome, r operation.Receipt) (operation.State, error) {
	s.t.Helper()
	return s.Resolve(s.t.Context(), operation.ResolveParams{
		Scope: scope, Owner: "ann", ID: id, Receipt: r, Fingerprint: fingerprint(1),
		Resolution: operation.Resolution{By: "olga", Outcome: outcome, Note: "asked the ledger"},
	})
}

func (s *subject) get(id string) operation.Operation {
	s.t.Helper()
	op, err := s.Get(s.t.Context(), operation.GetParams{Scope: scope, Owner: "ann", ID: id})
	if err != nil {
		s.t.Fatalf("get: %v", err)
	}
	return op
}

// recordKey is the key of the record of ann's operation.
func recordKey(t *testing.T, owner, key string) state.Key {
	t.Helper()
	part, err := operations(t, storetest.Memory(t).Store, operation.Options{}).Claim(t.Context(), params(owner, key))
	if err != nil {
		t.Fatal(err)
	}
	return part.RecordKey()
}

func (s *subject) wantError(what string, got, want error) {
	s.t.Helper()
	if !errors.Is(got, want) {
		s.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

const day = 24 * time.Hour
