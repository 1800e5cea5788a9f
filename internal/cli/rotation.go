package cli

import (
	"context"
	"log/slog"

	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/state"
)

// rotation brings integrity keys that were added to the keyring into use, on one open store. Each step may be repeated, by
// any number of servers:
//
//	added to the keyring ──► read by this store ──► announced in the store ──► written with, once every server knows it
type rotation struct {
	*stack
	inUse *state.Keys // the ones that the store has; nil at first
	wrote bool        // a step has made the keyring write with another key
}

// step goes on as far as can be now.
func (r *rotation) step(ctx context.Context) error {
	if _, err := r.keys.Reload(); err != nil {
		return err
	}
	if now := r.keys.Integrity(); now != r.inUse {
		if err := r.store.SetKeys(ctx, now); err != nil {
			return err
		}
		for _, id := range now.IDs() {
			if err := r.store.AnnounceKey(ctx, id); err != nil {
				return err
			}
		}
		r.inUse = now
	}
	list := r.keys.IntegrityKeys()
	newest := list[len(list)-1]
	if newest.Writes || (clock.System{}).Now().Sub(newest.Added) < keyring.Propagation {
		return nil
	}
	if err := r.keys.WriteIntegrity(ctx, newest.ID); err != nil {
		return err
	}
	r.wrote = true
	return nil
}

// follow keeps a server's store up to date with its keyring until ctx ends.
func (r *rotation) follow(ctx context.Context, log *slog.Logger) {
	failing := false
	r.keys.Watch(ctx, func(_ bool, err error) {
		if err == nil {
			err = r.step(ctx)
		}
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			log.Error("the keys could not be taken up; this server goes on with those that it has and says that it is not ready", "error", err)
		case err == nil && failing:
			log.Info("the keys are taken up again")
		}
		failing = err != nil
		if err == nil && r.wrote && r.inUse == r.keys.Integrity() {
			r.reseal(ctx, log)
		}
	})
}

// reseal seals anew what older keys have sealed, so that they can be retired.
func (r *rotation) reseal(ctx context.Context, log *slog.Logger) {
	n, err := r.store.Reseal(ctx)
	if err != nil {
		log.Warn("records could not all be sealed anew; it is tried again", "error", err)
		return
	}
	r.wrote = false
	log.Info("records are sealed with the new key", "sealed_anew", n)
}
