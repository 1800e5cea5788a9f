package store

import (
	"context"
	"errors"
	"time"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// Swept counts what one pass of the sweeper did.
type Swept struct {
	Removed int // records deleted or shrunk to tombstones
	Leases  int // records whose lease was over and that were handed on
	Failed  int // batches and handlers that failed; they are tried again in the next pass
}

// HandleLeases registers what the sweeper does from now on with records of a
// kind whose lease is over.
func (s *Store) HandleLeases(kind state.Kind, h LeaseHandler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[kind] = h
}

func (s *Store) leaseHandler(kind state.Kind) LeaseHandler {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handlers[kind]
}

// background starts what runs while the store is open.
func (s *Store) background() {
	if s.witness != nil {
		s.work.Add(1)
		go s.follow()
	}
	if s.options.SweepEvery > 0 {
		s.work.Add(1)
		go s.sweeper()
	}
}

func (s *Store) sweeper() {
	defer s.work.Done()
	if s.time.downtime > 0 {
		s.options.Log.Warn("the store was down, or its clock has leapt: nothing is swept for a while", "gap", s.time.downtime, "wait", sweepDelay)
		select {
		case <-s.stopped.Done():
			return
		case <-time.After(sweepDelay):
		}
	}
	tick := time.NewTicker(s.options.SweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stopped.Done():
			return
		case <-tick.C:
		}
		if _, err := s.Sweep(s.stopped); err != nil && s.stopped.Err() == nil {
			s.options.Log.Warn("a pass of the sweeper ended early", "error", err)
		}
	}
}

// Sweep makes one pass over all scopes: it deletes what has been over for long
// enough, shrinks receipts past their retention to tombstones, and hands on
// records whose lease is over. Every record is checked again in the
// transaction that deletes it. No correctness waits for it.
func (s *Store) Sweep(ctx context.Context) (Swept, error) {
	var total Swept
	if err := s.eachScope(ctx, func(name string) error { return s.sweepScope(ctx, name, &total) }); err != nil {
		return total, err
	}
	if now, err := s.Now(ctx); err == nil {
		s.sweptAt.Store(now)
	}
	return total, nil
}

func (s *Store) sweepScope(ctx context.Context, scope string, total *Swept) error {
	for _, kind := range state.Kinds() {
		n, err := s.sweepKind(ctx, scope, kind, sweepPerKind)
		total.Removed += n
		switch {
		case errors.Is(err, state.ErrClock), errors.Is(err, state.ErrLatched), ctx.Err() != nil:
			return err
		case err != nil:
			total.Failed++
		}
		h := s.leaseHandler(kind)
		if h == nil {
			continue
		}
		if err := s.handLeases(ctx, scope, kind, h, total); err != nil {
			return err
		}
	}
	return nil
}

// sweepKind sweeps at most limit records of one kind.
func (s *Store) sweepKind(ctx context.Context, scope string, kind state.Kind, limit int) (int, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	swept := 0
	for cursor := ""; limit > 0; {
		due, next, err := s.engine.Due(ctx, scope, engine.ByExpiry, kind, now, cursor, min(limit, sweepBatch))
		if err != nil {
			return swept, s.engineError(err)
		}
		if len(due) == 0 {
			return swept, nil
		}
		b := &state.Batch{Scope: scope}
		for _, d := range due {
			b.Ops = append(b.Ops, state.Sweep{Key: d.Key})
		}
		out, err := s.do(ctx, b)
		if err != nil {
			return swept, err
		}
		for _, skipped := range out.Skipped {
			if !skipped && out.Applied {
				swept++
			}
		}
		limit -= len(due)
		if cursor = next; cursor == "" {
			return swept, nil
		}
	}
	return swept, nil
}

func (s *Store) handLeases(ctx context.Context, scope string, kind state.Kind, h LeaseHandler, total *Swept) error {
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	for cursor, left := "", sweepPerKind; left > 0; {
		page, next, err := s.Leases(ctx, scope, kind, now, cursor, min(left, 256))
		if err != nil {
			return err
		}
		for _, e := range page {
			if e.Err != nil {
				continue // listed by the doctor
			}
			if err := h(ctx, e.Key, e.Record); err != nil {
				total.Failed++
				continue
			}
			total.Leases++
		}
		left -= len(page)
		if cursor = next; cursor == "" {
			break
		}
	}
	return nil
}
