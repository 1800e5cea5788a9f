package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/api"
)

func (a *app) epochCommand() *cobra.Command {
	return group("epoch", "The epoch of a scope: a number that only rises, and ends every pending challenge when it does", a.epochShow(), a.epochAdvance())
}

func (a *app) epochShow() *cobra.Command {
	return a.asking("show", "Show the present epoch", cobra.NoArgs, func(ctx context.Context, c *call, at *reached) error {
		var ans api.EpochAnswer
		if err := at.get(ctx, "/v1/epoch", nil, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "%d", ans.Epoch)
	})
}

func (a *app) epochAdvance() *cobra.Command {
	var from uint64
	c := a.asking("advance", "Advance the epoch by one, if it is the one that --from names", cobra.NoArgs, func(ctx context.Context, c *call, at *reached) (err error) {
		if from == 0 || from > api.MaxInteger {
			return badValue("--from is missing: give the epoch to go on from, as 'counterfoil epoch show' says")
		}
		req := api.AdvanceRequest{From: api.Epoch(from)}
		if req.Token, err = drawToken(); err != nil {
			return err
		}
		var ans api.EpochAnswer
		if err := at.post(ctx, "/v1/epoch/advance", &req, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "%d", ans.Epoch)
	})
	c.Flags().Uint64Var(&from, "from", 0, "the `epoch` to go on from")
	return c
}
