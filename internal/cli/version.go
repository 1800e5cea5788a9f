package cli

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// built is what the program was built from.
type built struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitzero"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func version() built {
	b := built{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	return a.command("version", "Print the version", 0, cobra.NoArgs, func(_ context.Context, c *call) error {
		b := version()
		return c.answer(&b, "counterfoil %s (%s, %s)", b.Version, b.Go, b.Platform)
	})
}
