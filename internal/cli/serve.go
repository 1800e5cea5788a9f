package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/config"
)

// serving is what serve answers once it takes requests.
type serving struct {
	Address   string `json:"address"`
	TokenFile string `json:"token_file,omitzero"`
	Engine    string `json:"engine"`
	Guarantee string `json:"guarantee"`
}

func (a *app) serveCommand() *cobra.Command {
	return a.command("serve", "Serve the HTTP interface until SIGTERM", config.Place|config.Serve|config.Log, cobra.NoArgs, func(ctx context.Context, c *call) error {
		if c.config.Server != "" {
			return badValue("serve works on a store: give --data DIR, not --server")
		}
		p, err := placeOf(c.config)
		if err != nil {
			return err
		}
		collectLess()
		log := c.logger()
		s, err := c.openOrCreate(ctx, p, log)
		if err != nil {
			return err
		}
		return errors.Join(c.serve(ctx, s, log), s.close())
	})
}

// heapGrowth is how much garbage a server lets gather before it collects, in per
// cent of what is alive: little is, and what each request leaves behind is
// short-lived, so that collecting less often saves a third of the CPU time. The
// variables GOGC and GOMEMLIMIT of Go go before it.
const heapGrowth = 400

func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}

// logger writes what the server has to say to stderr.
func (c *call) logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.config.LogLevel)) // one of the four that the option takes
	options := &slog.HandlerOptions{Level: level}
	if c.config.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(c.Err, options))
	}
	return slog.New(slog.NewTextHandler(c.Err, options))
}

// openOrCreate opens the store; with --init it creates one where there is none.
func (c *call) openOrCreate(ctx context.Context, p place, log *slog.Logger) (*stack, error) {
	broken := func(code int) {
		fmt.Fprintln(c.Err, "counterfoil: a write to the store failed, and nothing is granted until it is opened again: look at the disk, then start the server anew")
		os.Exit(code)
	}
	if c.config.Init {
		s, err := create(ctx, p, c.config, log, broken)
		if err == nil || !errors.Is(err, engine.ErrStoreExists) {
			return s, err
		}
	}
	return openStack(ctx, p, c.config, log, broken)
}

// serve answers requests until ctx ends, and then finishes those in progress.
func (c *call) serve(ctx context.Context, s *stack, log *slog.Logger) error {
	h, err := s.server(c.config, log)
	if err != nil {
		return err
	}
	l, address, err := c.listenAt(ctx, c.config.Listen, 0)
	if err != nil {
		return err
	}
	if named, ok := s.engine.(interface{ SetHolder(string) error }); ok {
		if err := named.SetHolder(address); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	if err := c.greet(s, address); err != nil {
		return errors.Join(err, l.Close())
	}
	keys, stop := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		(&rotation{stack: s}).follow(keys, log)
	}()
	err = h.Serve(ctx, l)
	stop()
	<-followed
	return err
}

// greet says where the server is, and gives a first request to try.
func (c *call) greet(s *stack, address string) error {
	g := s.engine.Guarantee()
	if c.json {
		return c.printJSON(&serving{address, s.place.token, g.Engine, string(g.Level)})
	}
	text := "Counterfoil serves at " + address + " on " + s.place.shown + " (" + g.Engine + ": " + meaningOf(g.Level) + ")\n"
	if s.place.token != "" {
		text += "The admin's token is in " + s.place.token + ". Try:\n\n" +
			"  curl -s " + address + "/v1/operations -H \"Authorization: Bearer $(cat " + quote(s.place.token) + ")\" \\\n" +
			"    -H 'Content-Type: application/json' -d '{\"key\": \"order-1\", \"request\": {\"pay\": 100}}'\n\n"
	}
	_, err := io.WriteString(c.Out, text+"The interface is described at "+address+"/docs\n")
	return err
}

func meaningOf(level engine.Level) string {
	switch level {
	case engine.Node:
		return "what it acknowledges survives a crash of this machine"
	case engine.Replicated:
		return "what it acknowledges survives the loss of a machine"
	}
	return "it forgets everything when it stops"
}

// quote writes a word for a shell.
func quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, needsQuotes) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func needsQuotes(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/._-+:=@%,", r)
}
