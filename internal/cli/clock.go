package cli

import (
	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/store"
)

func (a *app) clockCommand() *cobra.Command {
	return group("clock", "The clock that decisions rest on",
		a.reopening("rebaseline", "Accept the clock as it is now, after it was stepped; every scope goes into quarantine", store.Rebaseline))
}
