package challenge

import (
	"time"

	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// How long a challenge may wait to be consumed.
const (
	DefaultTTL = time.Hour
	MinTTL     = time.Second
	MaxTTL     = 24 * time.Hour
)

// DefaultKeep is how long a job stays refused after its challenge was consumed.
const DefaultKeep = 24 * time.Hour

// margin is what a marker outlives its challenge by, beside the skew of two clocks: the step of a clock that is absorbed,
// and three minutes.
const margin = state.Tolerance + 3*60_000

// tries bounds how often a step is tried against others who change the same challenge.
const tries = 16

// Options configure [Challenges].
type Options struct {
	// Keep is how long a job stays refused after its challenge was consumed; 0 means [DefaultKeep]. It is never shorter
	// than the challenge's TTL plus twice the skew (5 s) plus 5 min.
	Keep time.Duration
}

// Challenges issues and consumes challenges on a store. It is safe for concurrent use, in any number of processes.
type Challenges struct {
	store *store.Store
	keep  int64 // ms
}

// New returns the challenges of a store.
func New(s *store.Store, o Options) *Challenges {
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	return &Challenges{store: s, keep: o.Keep.Milliseconds()}
}

// Job names what wants a key.
type Job [32]byte

// Nonce is what a job proves to know. Whoever has it can consume the challenge: keep it out of logs and URLs.
type Nonce [32]byte

// AAD returns the bytes to bind a sealed key to: the ASCII tag counterfoil.challenge.v1, the epoch in 8 bytes big-endian,
// the job and the nonce. Every part has a fixed width.
func AAD(epoch uint64, job Job, nonce Nonce) []byte { return ids.ChallengeAAD(epoch, job, nonce) }

func keyOf(scope string, job Job) state.Key {
	return state.Key{Scope: scope, Kind: state.KindChallenge, ID: string(job[:])}
}

func checkScope(scope string) error {
	if err := state.CheckScopeName(scope); err != nil {
		return invalidf("%v", err)
	}
	return nil
}

func checkCaller(scope, owner string) error {
	if err := state.CheckName(owner); err != nil {
		return invalidf("owner: %v", err)
	}
	return checkScope(scope)
}
