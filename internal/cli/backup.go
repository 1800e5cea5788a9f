package cli

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/api"
)

func (a *app) backupCommand() *cobra.Command {
	return a.asking("backup DIRECTORY", "Copy the embedded store into a new directory, with --server while that runs and on its machine", cobra.ExactArgs(1),
		func(ctx context.Context, c *call, at *reached) error {
			dir := c.args[0]
			if c.direct() {
				absolute, err := filepath.Abs(dir)
				if err != nil {
					return badValue("DIRECTORY: %w", err)
				}
				dir = absolute
			}
			var ans api.BackupAnswer
			if err := at.once(ctx, "/v1/backup", &api.BackupRequest{Directory: dir}, &ans); err != nil {
				return err
			}
			return c.answer(&ans, "the store is copied to %s; its keys are not in the copy: keep them apart", ans.Directory)
		})
}
