package counter

import (
	"context"
	"sync"

	"github.com/counterfoil/counterfoil/state"
)

// removeAtOnce is how many removals are under way at a time, removePage how many counters one call removes.
const (
	removeAtOnce = 64
	removePage   = 4096
)

// RemoveParams names a counter.
type RemoveParams struct {
	Scope string
	Name  string
}

// Removed says what was removed.
type Removed struct {
	Count int
	// More says that there are others: call again with the same prefix.
	More bool
}

// Remove removes a counter, if it is there.
func (c *Counters) Remove(ctx context.Context, p RemoveParams) (Removed, error) {
	if err := checkName(p.Name); err != nil {
		return Removed{}, err
	}
	ok, err := c.remove(ctx, key(p.Scope, p.Name))
	if err != nil || !ok {
		return Removed{}, err
	}
	return Removed{Count: 1}, nil
}

func (c *Counters) remove(ctx context.Context, key state.Key) (bool, error) {
	out, err := c.store.Do(ctx, &state.Batch{Scope: key.Scope, Ops: []state.Op{state.Remove{Key: key}}})
	if err != nil {
		return false, err
	}
	if !out.Applied {
		return false, refused(&out, nil)
	}
	return !out.Skipped[0], nil
}

// RemovePrefixParams names all counters whose names begin with the bytes of a prefix, which is not empty. End it with
// whatever separates the parts of your names: the prefix "session/1" is one of "session/10" too.
type RemovePrefixParams struct {
	Scope  string
	Prefix string
}

// RemovePrefix removes counters by prefix, at most 4096 in a call. It removes one after the other: after an error, what was
// removed stays removed, and the call may be made again.
func (c *Counters) RemovePrefix(ctx context.Context, p RemovePrefixParams) (Removed, error) {
	if err := checkName(p.Prefix); err != nil {
		return Removed{}, invalidf("prefix: %v", err)
	}
	page, next, err := c.store.Scan(ctx, p.Scope, state.KindCounter, p.Prefix, "", removePage)
	if err != nil {
		return Removed{}, err
	}
	done := Removed{More: next != ""}
	var mu sync.Mutex
	var wg sync.WaitGroup
	room := make(chan struct{}, removeAtOnce)
	for _, e := range page {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			ok, failed := c.remove(ctx, e.Key)
			mu.Lock()
			defer mu.Unlock()
			if ok {
				done.Count++
			}
			if err == nil {
				err = failed
			}
		})
	}
	wg.Wait()
	return done, err
}
