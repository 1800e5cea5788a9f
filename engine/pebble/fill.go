package pebble

import "github.com/cockroachdb/pebble/v2"

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
	more := e.fill(keys, keys.First(), fillAtOnce)
	if !more {
		e.endFilling(keys)
		return nil
	}
	go func() {
		for more {
			select {
			case <-e.stop:
				_ = keys.Close() // the filter stays maybe for what is left of the engine
				close(e.filling)
				return
			default:
				more = e.fill(keys, more, 1000)
			}
		}
		e.endFilling(keys)
	}()
	return nil
}

// fill adds at most n keys and reports whether there are more.
func (e *Engine) fill(keys *pebble.Iterator, more bool, n int) bool {
	for ; more && n > 0; n-- {
		e.filter.add(e.filter.hash(keys.Key()))
		more = keys.Next()
	}
	return more
}

// endFilling opens the filter for use, but only if every key was seen: while a
// damaged block hides some, every key stays maybe.
func (e *Engine) endFilling(keys *pebble.Iterator) {
	defer close(e.filling)
	err := keys.Error()
	if closeErr := keys.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		e.latch.log.Error("not every key could be read for the filter of present keys: each look-up searches the tables", "error", err)
		return
	}
	e.filter.filled()
}
