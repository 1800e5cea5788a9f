package pebble

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

func TestBackupUnderLoadIsABeginningThatHoldsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	for round := range 5 {
		dir := newDir(t)
		options := Options{MemtableBytes: 128 << 10}
		must(t, Create(dir, options))
		e := open(t, dir, options)
		h := &history{before: map[state.Key]*state.Sealed{}}
		h.run(t, e, uint64(round), 50)
		acked := h.acked
		var wg sync.WaitGroup
		wg.Go(func() { h.run(t, e, uint64(100+round), 300) })
		backup := filepath.Join(t.TempDir(), "backup")
		must(t, e.Checkpoint(t.Context(), backup))
		wg.Wait()
		h.acked = acked
		h.check(t, open(t, backup, options))
	}
}

func TestBackupIntoAnExistingOrUnsuitablePlaceIsRefusedAndHarmsNothing(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	must(t, Create(dir, Options{}))
	e := open(t, dir, Options{})
	existing := t.TempDir()
	kept := filepath.Join(existing, "kept")
	must(t, os.WriteFile(kept, []byte("x"), 0o600))
	for name, target := range map[string]string{
		"an existing directory": existing,
		"an existing file":      kept,
		"inside the store":      filepath.Join(dir, "backup"),
		"the store itself":      dir,
		"below nothing":         filepath.Join(existing, "no", "such"),
	} {
		if err := e.Checkpoint(t.Context(), target); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := e.Checkpoint(t.Context(), existing); !errors.Is(err, engine.ErrStoreExists) {
		t.Errorf("an existing directory: %v, want ErrStoreExists", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	if _, err := e.Now(t.Context()); err != nil {
		t.Errorf("after the refusals: %v", err)
	}
}
