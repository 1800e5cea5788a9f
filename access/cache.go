package access

import (
	"sync"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// cache remembers what was found about tokens, for so long and no longer. It is bounded: what was asked for last is kept
// in two generations of at most size entries each. It is safe for concurrent use.
type cache struct {
	keep time.Duration
	size int

	mu       sync.Mutex
	young    map[state.Digest]finding
	old      map[state.Digest]finding
	forgotAt uint64 // rises with every forget
}

// finding is a principal, or that there is none.
type finding struct {
	principal *Principal
	at        time.Duration // boot time before the store was asked
}

func newCache(keep time.Duration, size int) *cache {
	return &cache{keep: keep, size: size, young: map[state.Digest]finding{}}
}

// get returns what is known of a hash at boot time now, and a mark for put.
func (c *cache) get(hash state.Digest, now time.Duration) (f finding, known bool, mark uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, known = c.young[hash]
	if !known {
		f, known = c.old[hash]
	}
	return f, known && now-f.at < c.keep, c.forgotAt
}

// put remembers a finding, unless something was forgotten since mark was given: it may be what was found.
func (c *cache) put(hash state.Digest, f finding, mark uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mark != c.forgotAt {
		return
	}
	if _, there := c.young[hash]; !there && len(c.young) >= c.size {
		c.young, c.old = make(map[state.Digest]finding, c.size), c.young
	}
	c.young[hash] = f
}

func (c *cache) forget(hash state.Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotAt++
	delete(c.young, hash)
	delete(c.old, hash)
}
