package engine

import (
	"errors"
	"fmt"

	"github.com/counterfoil/counterfoil/state"
)

// Limits that hold on every engine.
const (
	// MaxKeys is how many keys one transaction may read.
	MaxKeys = 1 << 16
	// MaxRounds is how often a function may ask for more keys.
	MaxRounds = 16
	// MaxPage is how many entries one call of Due, Scan or Scopes gives,
	// whatever limit was asked for.
	MaxPage = 10_000
)

// Errors of misuse: the caller's code is wrong and nothing was written.
var (
	errScopes  = errors.New("engine: keys of several scopes in one transaction")
	errRounds  = fmt.Errorf("engine: the function asked for more keys %d times", MaxRounds)
	errNotRead = errors.New("engine: a change of a key that was not read")
	errTwice   = errors.New("engine: two changes of one key")
	errLimit   = errors.New("engine: the limit must be above 0")
)

// CheckKeys reports why keys cannot be read together: there are more than
// [MaxKeys], one does not validate, or they are of several scopes.
func CheckKeys(keys []state.Key) error {
	if len(keys) > MaxKeys {
		return fmt.Errorf("engine: %d keys in one transaction, the limit is %d", len(keys), MaxKeys)
	}
	for i, k := range keys {
		switch {
		case i > 0 && k.Scope != keys[0].Scope:
			return errScopes
		case i > 0 && k.Kind.Valid() && k.ID != "" && len(k.ID) <= state.MaxIDBytes:
			continue // the scope was checked with the first key
		}
		if err := k.Validate(); err != nil {
			return fmt.Errorf("engine: key %d: %w", i, err)
		}
	}
	return nil
}

// CheckRound reports that a function has asked for more keys too often; rounds
// counts from 1.
func CheckRound(rounds int) error {
	if rounds > MaxRounds {
		return errRounds
	}
	return nil
}

// Page bounds the limit of one listing.
func Page(limit int) (int, error) {
	if limit < 1 {
		return 0, errLimit
	}
	return min(limit, MaxPage), nil
}

// Positions gives, for each change, the position of its key among the keys
// that were read. It fails if one was not read or is changed twice.
func Positions(keys []state.Key, changes []Change) ([]int, error) {
	const taken = -1
	read := make(map[state.Key]int, len(keys))
	for i := len(keys) - 1; i >= 0; i-- {
		read[keys[i]] = i
	}
	at := make([]int, len(changes))
	for i := range changes {
		p, ok := read[changes[i].Key]
		switch {
		case !ok:
			return nil, errNotRead
		case p == taken:
			return nil, errTwice
		}
		at[i], read[changes[i].Key] = p, taken
	}
	return at, nil
}
