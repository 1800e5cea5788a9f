package entropy_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil/internal/entropy"
)

func TestSystemFillsEveryByteAnew(t *testing.T) {
	t.Parallel()
	seen := map[[32]byte]bool{{}: true}
	for range 1000 {
		var p [32]byte
		if err := entropy.Fill(p[:]); err != nil {
			t.Fatal(err)
		}
		if seen[p] {
			t.Fatalf("drawn twice: %x", p)
		}
		seen[p] = true
	}
}

func TestSystemReachesEveryPosition(t *testing.T) {
	t.Parallel()
	var or [64]byte
	for range 64 {
		var p [64]byte
		if err := entropy.System.Fill(p[:]); err != nil {
			t.Fatal(err)
		}
		for i := range p {
			or[i] |= p[i]
		}
	}
	if bytes.IndexByte(or[:], 0) >= 0 {
		t.Fatalf("a byte was never written: %x", or)
	}
}

func TestSeededRepeatsItself(t *testing.T) {
	t.Parallel()
	draw := func(seed uint64) []byte {
		p := make([]byte, 100)
		if err := entropy.Seeded(seed).Fill(p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	if !bytes.Equal(draw(1), draw(1)) {
		t.Fatal("one seed gave two streams")
	}
	if bytes.Equal(draw(1), draw(2)) {
		t.Fatal("two seeds gave one stream")
	}
}

func TestSeededNeverGivesTheSameBytesToTwoCallers(t *testing.T) {
	t.Parallel()
	src := entropy.Seeded(7)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		seen = map[[16]byte]bool{}
	)
	for range 8 {
		wg.Go(func() {
			for range 200 {
				var p [16]byte
				err := src.Fill(p[:])
				mu.Lock()
				if err != nil || seen[p] {
					t.Errorf("err %v, drawn twice %v", err, seen[p])
				}
				seen[p] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestFailingRefusesAndLeavesNothingToUse(t *testing.T) {
	t.Parallel()
	p := []byte{1, 2, 3}
	if err := entropy.Failing.Fill(p); !errors.Is(err, entropy.ErrExhausted) {
		t.Fatalf("err = %v, want ErrExhausted", err)
	}
	if !bytes.Equal(p, make([]byte, 3)) {
		t.Fatalf("left %x", p)
	}
}
