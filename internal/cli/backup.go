package cli

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/config"
)

func (a *app) backupCommand() *cobra.Command {
	return a.command("backup DIRECTORY", "Copy the embedded store into a new directory; with --server while that runs, on its machine", config.Place, cobra.ExactArgs(1),
		func(ctx context.Context, c *call) error {
			return c.with(ctx, func(at *reached) error {
				ans, err := c.backup(ctx, at)
				if err != nil {
					return err
				}
				return c.answer(ans, "the store is copied to %s; its keys are not in the copy: keep them apart", ans.Directory)
			})
		})
}

func (c *call) backup(ctx context.Context, at *reached) (*api.BackupAnswer, error) {
	ans := &api.BackupAnswer{Directory: c.args[0]}
	if at.stack == nil {
		return ans, at.once(ctx, "/v1/backup", &api.BackupRequest{Directory: ans.Directory}, ans)
	}
	copies, ok := at.stack.engine.(engine.Checkpointer)
	if !ok {
		return nil, badValue("this engine is backed up by its own means, not by this program")
	}
	dir, err := filepath.Abs(ans.Directory)
	if err != nil {
		return nil, badValue("DIRECTORY: %w", err)
	}
	ans.Directory = dir
	return ans, copies.Checkpoint(ctx, dir)
}
