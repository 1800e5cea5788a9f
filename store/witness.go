package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/state"
)

// ErrRolledBack says that the engine is behind its witness: state was lost or an
// old copy was put back. Only [Recover] opens it again.
var ErrRolledBack = errors.New("the store is behind its witness: state was lost or an old copy was restored; run 'counterfoil recover'")

// ErrWitness says that the witness is missing or cannot be read, so that nobody
// can tell whether state was lost.
var ErrWitness = errors.New("the witness")

const witnessFormat = 1

// witnessEvery is how often the witness follows the engine at most. A rollback
// of less than that is not noticed.
const witnessEvery = time.Second

// witnessed is the content of a witness file.
type witnessed struct {
	Format     int    `json:"format"`
	Store      string `json:"store"` // identity of the store, hex
	Generation uint64 `json:"generation"`
	Mark       int64  `json:"mark"` // the latest time that was decided on, ms
}

// witness is the file that follows the store's mark. It is always written
// after the engine, so that an honest engine is never behind it.
type witness struct {
	path string

	mu     sync.Mutex
	last   witnessed
	behind error // why it could not be written when it was last tried
}

// trouble is why the file does not follow the engine, nil if it does.
func (w *witness) trouble() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.behind
}

func readWitness(path string) (witnessed, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return witnessed{}, fmt.Errorf("%w file is missing: if it was lost for good, run 'counterfoil recover'", ErrWitness)
	case err != nil:
		return witnessed{}, fmt.Errorf("%w file cannot be read: %w", ErrWitness, err)
	case !info.Mode().IsRegular() || info.Size() > 4096:
		return witnessed{}, fmt.Errorf("%w is not a small regular file", ErrWitness)
	}
	data, err := os.ReadFile(path) //nolint:gosec // the operator's own path.
	if err != nil {
		return witnessed{}, fmt.Errorf("%w file cannot be read: %w", ErrWitness, err)
	}
	var w witnessed
	if err := canonical.Decode(data, &w); err != nil || w.Format != witnessFormat || w.Generation == 0 || w.Mark < 0 {
		return witnessed{}, fmt.Errorf("%w file is damaged or of another version: if it was lost for good, run 'counterfoil recover'", ErrWitness)
	}
	return w, nil
}

// writeWitness replaces the file as a whole and makes it durable.
func writeWitness(path string, w witnessed) (err error) {
	data, err := json.Marshal(w)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the operator's own path.
	if err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func absent(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the witness file is there already", engine.ErrStoreExists)
	}
	return nil
}

// openWitness compares the engine with the witness and goes on with it.
func (s *Store) openWitness(ctx context.Context) error {
	w, err := readWitness(s.options.Witness)
	if err != nil {
		return err
	}
	id, generation, err := s.identity(ctx)
	switch {
	case err != nil:
		return err
	case w.Store != id:
		return fmt.Errorf("%w: the witness belongs to another store", engine.ErrForeign)
	case generation < w.Generation || s.highest() < w.Mark:
		return ErrRolledBack
	}
	w.Generation = generation
	s.witness = &witness{path: s.options.Witness, last: w}
	return nil
}

func (s *Store) identity(ctx context.Context) (id string, generation uint64, err error) {
	recs, err := s.Read(ctx, storeIDKey, state.ScopeKey(state.StoreScope))
	if err != nil {
		return "", 0, err
	}
	if recs[0] == nil || recs[1] == nil {
		return "", 0, engine.ErrForeign
	}
	s.time.generation.Store(recs[1].Scope().Generation)
	return hex.EncodeToString(recs[0].Digest[:]), recs[1].Scope().Generation, nil
}

// write brings the file up to a mark that is durable in the engine.
func (w *witness) write(mark int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if mark <= w.last.Mark {
		return nil
	}
	next := w.last
	next.Mark = mark
	if w.behind = writeWitness(w.path, next); w.behind != nil {
		return w.behind
	}
	w.last = next
	return nil
}

// follow writes the witness while the store is open.
func (s *Store) follow() {
	defer s.work.Done()
	tick := time.NewTicker(witnessEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stopped.Done():
			return
		case <-tick.C:
		}
		if err := s.witness.write(s.highest()); err != nil {
			s.options.Log.Error("the witness cannot be written", "error", err)
		}
	}
}

// readMarks finds the latest time that any instance decided on, in all scopes.
func (s *Store) readMarks(ctx context.Context) error {
	err := s.eachScope(ctx, func(name string) error {
		page, _, err := s.engine.Scan(ctx, name, state.KindWriter, "", "", state.MaxWriters)
		if err != nil {
			return err
		}
		for _, f := range page {
			if rec, err := s.open(f.Key, f.Item); err == nil {
				s.time.advance(rec.Writer().Mark)
			}
		}
		return nil
	})
	if err == nil {
		s.time.opened()
	}
	return err
}

// highest is the latest time that a durable commit was decided at.
func (s *Store) highest() int64 { return s.time.mark.Load() }
