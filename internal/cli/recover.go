package cli

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/config"
	"github.com/counterfoil/counterfoil/store"
)

// recovered is what recover and clock rebaseline answer.
type recovered struct {
	Generation uint64 `json:"generation"`
}

// reopen is how an operator opens a store that does not open by itself.
type reopen func(context.Context, engine.Engine, store.Options, string) (*store.Store, error)

func (a *app) recoverCommand() *cobra.Command {
	return a.reopening("recover", "Open a store whose state was lost or put back: permits issued until now are refused, and every scope is in quarantine",
		store.Recover)
}

// reopening makes a command that opens the store in another generation.
func (a *app) reopening(use, short string, open reopen) *cobra.Command {
	var why string
	c := a.command(use, short, config.Place, cobra.NoArgs, func(ctx context.Context, c *call) error {
		if !c.direct() {
			return badValue("this works on the store itself, which no server may have open: give --data, not --server")
		}
		if why == "" {
			return badValue("--why is missing: say what happened; it is kept as the reason of the quarantine")
		}
		p, err := placeOf(c.config)
		if err != nil {
			return err
		}
		s, err := c.openBy(ctx, p, why, open)
		if err != nil {
			return err
		}
		ans := recovered{s.Health().Generation}
		if err := s.Close(); err != nil {
			return err
		}
		return c.answer(&ans, "the store is in generation %d and every scope in quarantine: reconcile what may have been lost, then lift it with 'counterfoil scope lift NAME --note HOW'", ans.Generation)
	})
	c.Flags().StringVar(&why, "why", "", "what happened; kept as the reason of the quarantine")
	return c
}

func (c *call) openBy(ctx context.Context, p place, why string, open reopen) (*store.Store, error) {
	silent := slog.New(slog.DiscardHandler)
	keys, err := p.openKeys()
	if err != nil {
		return nil, err
	}
	e, err := p.location.Open(ctx, p.engineOptions(c.config, silent, func(int) {}))
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, e, p.options(c.config, keys, silent), why)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return s, nil
}
