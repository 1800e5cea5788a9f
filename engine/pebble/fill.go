package pebble

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// fillAtOnce is how many keys opening itself adds to the filter; the rest goes
// on beside the first calls, for which every key is maybe present.
const fillAtOnce = 100_000

// startFilter adds all keys to the filter. The iterator sees the store as it
// was opened, before any call.
func (e *Engine) startFilter() error {
	keys, err := e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{dataSpace}, UpperBound: []byte{dataSpace + 1}})
	if err != nil {
		close(e.filling)
		return err
	}
	more := keys.First()
	for n := 0; more && n < fillAtOnce; n++ {
		e.filter.add(e.filter.hash(keys.Key()))
		more = keys.Next()
	}
	if !more {
		defer close(e.filling)
		return e.endFilling(keys)
	}
	go func() {
		defer close(e.filling)
		for more {
			select {
			case <-e.stop:
				_ = keys.Close() // the filter stays maybe for what is left of the engine
				return
			default:
			}
			for n := 0; more && n < 1000; n++ {
				e.filter.add(e.filter.hash(keys.Key()))
				more = keys.Next()
			}
		}
		if err := e.endFilling(keys); err != nil && e.latch.check() == nil {
			e.latch.log.Error("the filter of present keys could not be filled: every look-up searches the tables", "error", err)
		}
	}()
	return nil
}

// endFilling opens the filter for use, but only if every key was seen: a key
// that a damaged block hides must stay maybe.
func (e *Engine) endFilling(keys *pebble.Iterator) error {
	err := keys.Error()
	if closeErr := keys.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("read all keys: %w", err)
	}
	e.filter.filled()
	return nil
}
