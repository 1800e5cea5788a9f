// Package cli is the command line: one file a command.
//
// A command that asks a capability something builds a request of package api and sends it through package client, to a
// server or, with --data or --store, to one that lives in this process for as long as the command does. So both ways have
// the same rules, errors and output.
//
// What a command answers goes to stdout, one line of JSON with --json. An error is one line on stderr: what is wrong, and
// what to do. The exit codes are those of [Code].
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/config"
)

// Process is what the program was started with.
type Process struct {
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Environ []string // as os.Environ gives it
}

// Main runs the program and returns its exit code.
func Main(args []string, p Process) int {
	a := &app{Process: p, clock: clock.System{}}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	// A file that may not grow any more is an error of the write, and not the end of the program on the spot.
	signal.Ignore(syscall.SIGXFSZ)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once, unless a command takes signals itself.
	context.AfterFunc(ctx, stop)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return int(Done)
	}
	var began *ranError
	if !errors.As(err, &began) {
		err = &usageError{err, ran.CommandPath()}
	}
	return int(a.report(err))
}

// app is one run of the program.
type app struct {
	Process
	clock clock.Clock
	json  bool
}

// call is one run of a command.
type call struct {
	*app
	config *config.Config
	args   []string
	flags  *cobra.Command
}

// root is the whole tree of commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "counterfoil",
		Short:         "At most once, never over budget, and when the outcome cannot be known, it says so and refuses",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(*cobra.Command, []string) error { return errors.New("a command is missing") },
	}
	root.PersistentFlags().BoolVar(&a.json, "json", false, "answer in JSON, one line")
	root.CompletionOptions.DisableDescriptions = false
	for _, add := range commands {
		root.AddCommand(add(a))
	}
	return root
}

// commands are all commands, in the order of the alphabet.
var commands = []func(*app) *cobra.Command{
	(*app).approvalsCommand,
	(*app).backupCommand,
	(*app).benchCommand,
	(*app).budgetCommand,
	(*app).challengeCommand,
	(*app).clockCommand,
	(*app).doctorCommand,
	(*app).epochCommand,
	(*app).initCommand,
	(*app).keyCommand,
	(*app).mcpCommand,
	(*app).operationCommand,
	(*app).permitCommand,
	(*app).proxyCommand,
	(*app).recoverCommand,
	(*app).runCommand,
	(*app).scopeCommand,
	(*app).serveCommand,
	(*app).tokenCommand,
	(*app).versionCommand,
}

// group is a command that only has others below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return errors.New("a command is missing") },
	}
	c.AddCommand(below...)
	return c
}

// command makes a command that takes the options of the groups.
func (a *app) command(use, short string, groups config.Group, args cobra.PositionalArgs, run func(context.Context, *call) error) *cobra.Command {
	return a.commandWith(func(*pflag.FlagSet) {}, use, short, groups, args, run)
}

// commandWith makes a command with flags of its own, which go before options of the same name.
func (a *app) commandWith(own func(*pflag.FlagSet), use, short string, groups config.Group, args cobra.PositionalArgs, run func(context.Context, *call) error) *cobra.Command {
	c := config.New()
	command := &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(command *cobra.Command, args []string) error {
			if err := c.Load(a.Environ); err != nil {
				return err
			}
			for _, w := range c.Warnings() {
				a.note(w)
			}
			err := run(command.Context(), &call{app: a, config: c, args: args, flags: command})
			if err != nil {
				return &ranError{err}
			}
			return nil
		},
	}
	own(command.Flags())
	c.Bind(command.Flags(), groups)
	return command
}
