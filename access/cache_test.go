package access

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

func digest(n int) (d state.Digest) {
	binary.BigEndian.PutUint64(d[:], uint64(n))
	return d
}

func TestTheCacheIsBoundedAndKeepsWhatIsInUse(t *testing.T) {
	t.Parallel()
	const size = 100
	c := newCache(time.Second, size)
	for n := range 50 * size {
		c.put(digest(n), finding{}, 0)
		if len(c.young) > size || len(c.old) > size {
			t.Fatalf("%d and %d entries after %d", len(c.young), len(c.old), n)
		}
	}
	for n := 49 * size; n < 50*size; n++ {
		if _, known, _ := c.get(digest(n), 0); !known {
			t.Fatalf("one of the last %d is forgotten", size)
		}
	}
	if _, known, _ := c.get(digest(0), 0); known {
		t.Fatal("the first of thousands is still there")
	}
	// The same entry again takes no room.
	before := len(c.young)
	c.put(digest(50*size-1), finding{}, 0)
	if len(c.young) != before {
		t.Fatal("one entry twice")
	}
}

func TestTheCacheForgetsAfterItsTime(t *testing.T) {
	t.Parallel()
	c := newCache(time.Second, 10)
	c.put(digest(1), finding{at: time.Minute}, 0)
	for after, want := range map[time.Duration]bool{0: true, time.Second - 1: true, time.Second: false, time.Hour: false} {
		if _, known, _ := c.get(digest(1), time.Minute+after); known != want {
			t.Errorf("after %v: known %v", after, known)
		}
	}
}

// A look-up that began before a revocation may have found what the revocation ended.
func TestWhatWasFoundBeforeARevocationIsNotRememberedAfterIt(t *testing.T) {
	t.Parallel()
	c := newCache(time.Second, 10)
	_, _, mark := c.get(digest(1), 0)
	c.forget(digest(1))
	c.put(digest(1), finding{}, mark)
	if _, known, _ := c.get(digest(1), 0); known {
		t.Fatal("remembered")
	}
	_, _, mark = c.get(digest(1), 0)
	c.put(digest(1), finding{}, mark)
	if _, known, _ := c.get(digest(1), 0); !known {
		t.Fatal("nothing is remembered any more")
	}
}
