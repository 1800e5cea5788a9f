package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/guard/mcpguard"
	"github.com/counterfoil/counterfoil/internal/config"
)

// mcpFlags are the own flags of mcp. Its --config names the file of the guard, as that of proxy does.
type mcpFlags struct{ upstream, listen, config, run string }

func (f *mcpFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", "", "YAML `file` that says who owners are and how tools are guarded; see docs/mcp-guard.md")
	flags.StringVar(&f.run, "run", "", "`ID` of the run of all calls, to derive keys from; each run another one, such as that of uuidgen")
	flags.StringVar(&f.upstream, "upstream", "", "`URL` of a server over streamable HTTP, instead of a COMMAND")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8422", "with --upstream, `address` to listen on")
}

func (a *app) mcpCommand() *cobra.Command {
	f := new(mcpFlags)
	return a.commandWith(f.bind, "mcp --config FILE -- COMMAND… | mcp --config FILE --upstream URL",
		"Guard the tools of an MCP server: each call reaches it at most once", config.Place|config.Log|config.Guard, cobra.ArbitraryArgs,
		func(ctx context.Context, c *call) error {
			if f.config == "" || (f.upstream == "") == (len(c.args) == 0) {
				return badValue("mcp needs --config FILE, and either -- COMMAND… or --upstream URL")
			}
			options, err := c.guardedTools(f)
			if err != nil {
				return err
			}
			as, done, err := c.callers(ctx)
			if err != nil {
				return err
			}
			return errors.Join(c.mcp(ctx, f, options, as), done())
		})
}

// guardedTools reads how the tools are guarded.
func (c *call) guardedTools(f *mcpFlags) (*mcpguard.Options, error) {
	content, err := readFile(f.config)
	if err != nil {
		return nil, err
	}
	file, err := mcpguard.ParseConfig(content)
	if err != nil {
		return nil, badValue("%s: %w", f.config, err)
	}
	if err := c.loadOwner(f.config, &file.Owner.OwnerConfig); err != nil {
		return nil, err
	}
	o := file.Options()
	o.Log = c.logger()
	if f.run != "" {
		o.Run = f.run
	}
	if f.upstream == "" && o.Owner == "" {
		return nil, badValue("%s: over stdin and stdout nothing but the file says who calls: owner: {name: NAME}", f.config)
	}
	return &o, nil
}

func (c *call) mcp(ctx context.Context, f *mcpFlags, o *mcpguard.Options, as func(string) counterfoil.Caller) error {
	o.As = as
	guard, err := mcpguard.New(*o)
	if err != nil {
		return badValue("%s: %w", f.config, err)
	}
	if f.upstream == "" {
		return c.mcpPipe(ctx, guard)
	}
	return c.mcpListen(ctx, f, guard, o.Log)
}

// mcpPipe runs the server as a child, and stands between it and this program's own stdin and stdout. What the child writes
// to stderr goes there as it is; its exit code becomes this program's.
func (c *call) mcpPipe(ctx context.Context, guard *mcpguard.Guard) error {
	path, err := exec.LookPath(c.args[0])
	if err != nil {
		return exit(Usage, "cannot start the server: %w", err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	// No context: nothing but itself and the signals that it is sent end it.
	cmd := &exec.Cmd{Path: path, Args: c.args, Env: withoutToken(c.Environ), Stdout: to, Stderr: c.Err}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn...)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return exit(Usage, "cannot start the server: %w", err)
	}
	_ = to.Close() // the child has it
	ended := make(chan struct{})
	go passSignals(cmd.Process, signals, ended)
	go func() {
		_ = cmd.Wait()
		close(ended)
		// What the child left behind may hold its output open.
		time.AfterFunc(outputAfterEnd, func() { _ = from.Close() })
	}()
	err = guard.Pipe(context.WithoutCancel(ctx), mcpguard.Streams{
		FromClient: c.In, ToClient: c.Out, FromServer: from, ToServer: in, Drain: c.config.DrainTime,
	})
	if err != nil {
		_ = cmd.Process.Kill()
		return exit(Internal, "the server was stopped: %w; see max_frame in docs/mcp-guard.md", err)
	}
	<-ended
	if code := exitCodeOf(cmd.ProcessState); code != 0 {
		return &quietError{code}
	}
	return nil
}

// passSignals hands signals to a process until it has ended.
func passSignals(to *os.Process, signals <-chan os.Signal, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case s := <-signals:
			if !fromTerminal(s) {
				_ = to.Signal(s) // it may have just ended
			}
		}
	}
}

// withoutToken keeps the guard's own credentials from the server that it guards.
func withoutToken(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return strings.HasPrefix(v, "COUNTERFOIL_") })
}

// mcpListen guards a server over HTTP.
func (c *call) mcpListen(ctx context.Context, f *mcpFlags, guard *mcpguard.Guard, log *slog.Logger) error {
	u, err := url.Parse(f.upstream)
	if err != nil {
		return badValue("--upstream: want http(s)://host[:port][/path]")
	}
	l, address, err := c.listenForGuard(ctx, f.listen)
	if err != nil {
		return err
	}
	handler, err := guard.Proxy(mcpguard.ProxyOptions{Upstream: u, Loopback: isLoopback(l.Addr())})
	if err != nil {
		return errors.Join(badValue("--upstream: %w", err), l.Close())
	}
	if err := c.greetMCP(f, address+handler.Path()); err != nil {
		return errors.Join(err, l.Close())
	}
	s := &http.Server{
		Handler: handler, ReadHeaderTimeout: proxyHeaderTime, ReadTimeout: proxyBodyTime, IdleTimeout: proxyIdleTime,
		MaxHeaderBytes: proxyHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	s.RegisterOnShutdown(handler.EndStreams)
	return serveUntil(ctx, l, s, c.config.DrainTime)
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func (c *call) greetMCP(f *mcpFlags, address string) error {
	if c.json {
		return c.printJSON(&proxying{address, f.upstream})
	}
	_, err := fmt.Fprintf(c.Out, "Counterfoil guards the tools of %s at %s\n", f.upstream, address)
	return err
}
