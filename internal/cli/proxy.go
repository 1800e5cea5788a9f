package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/client"
	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/internal/config"
)

// Bounds of a proxy.
const (
	proxyHeaderTime = 10 * time.Second
	proxyBodyTime   = time.Minute
	proxyIdleTime   = 2 * time.Minute
	proxyHeader     = 64 << 10
)

// proxyFlags are the proxy's own flags. Its --config names the file of the guard, so that options of the program come from
// flags and variables alone.
type proxyFlags struct{ upstream, listen, config string }

func (f *proxyFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.upstream, "upstream", "", "`URL` of the API to guard: http(s)://host[:port][/path]")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8421", "`address` to listen on")
	flags.StringVar(&f.config, "config", "", "YAML `file` that says who owners are and how routes are guarded; see docs/http-guard.md")
}

// proxying is what proxy answers once it takes requests.
type proxying struct {
	Address  string `json:"address"`
	Upstream string `json:"upstream"`
}

func (a *app) proxyCommand() *cobra.Command {
	f := new(proxyFlags)
	return a.commandWith(f.bind, "proxy --upstream URL --config FILE", "Guard an HTTP API: a request with an Idempotency-Key reaches it at most once", config.Place|config.Log|config.Guard, cobra.NoArgs,
		func(ctx context.Context, c *call) error {
			if f.upstream == "" || f.config == "" {
				return badValue("proxy needs --upstream URL and --config FILE")
			}
			guarded, err := c.guardedAPI(f)
			if err != nil {
				return err
			}
			as, done, err := c.callers(ctx)
			if err != nil {
				return err
			}
			return errors.Join(c.proxy(ctx, f, guarded, as), done())
		})
}

// guardedAPI is what stands behind the guard, and how it is guarded.
type guardedAPI struct {
	upstream http.Handler
	options  httpguard.Options
}

func (c *call) guardedAPI(f *proxyFlags) (*guardedAPI, error) {
	content, err := readFile(f.config)
	if err != nil {
		return nil, err
	}
	file, err := httpguard.ParseConfig(content)
	if err != nil {
		return nil, badValue("%s: %w", f.config, err)
	}
	if err := c.loadOwner(f.config, &file.Owner); err != nil {
		return nil, err
	}
	u, err := url.Parse(f.upstream)
	if err != nil {
		return nil, badValue("--upstream: want http(s)://host[:port][/path]")
	}
	log := c.logger()
	upstream, err := httpguard.NewProxy(httpguard.ProxyOptions{Upstream: u, ReleaseHeader: file.ReleaseHeader, Log: log})
	if err != nil {
		return nil, badValue("--upstream: %w", err)
	}
	o := file.Options()
	o.Log = log
	return &guardedAPI{upstream, o}, nil
}

// loadOwner reads what the options of a guard, in the file of that name, need to know owners by.
func (c *call) loadOwner(path string, o *httpguard.OwnerConfig) error {
	if o.Certificate && c.config.TLSClientCA == "" {
		return badValue("%s: owner: {certificate: true} needs --tls-certificate, --tls-key and --tls-client-ca: whoever these issuers certify is an owner", path)
	}
	if err := o.Load(beside(path)); err != nil {
		return badValue("%s: %w", path, err)
	}
	return nil
}

// beside reads files whose paths are relative to that of another one, which names them.
func beside(path string) func(name string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		return readFile(name)
	}
}

// callers gives who acts for each owner, on a server or on a store that this process holds open.
func (c *call) callers(ctx context.Context) (as func(owner string) counterfoil.Caller, done func() error, err error) {
	if c.config.Owner != "" {
		return nil, nil, badValue("--owner has no meaning here: each request has its own")
	}
	if !c.direct() {
		return c.callersOfServer()
	}
	p, err := placeOf(c.config)
	if err != nil {
		return nil, nil, err
	}
	log := c.logger()
	s, err := c.openOrCreate(ctx, p, log)
	if err != nil {
		return nil, nil, err
	}
	keys, stop := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		(&rotation{stack: s}).follow(keys, log)
	}()
	scope := cmp.Or(c.config.Scope, access.DefaultScope)
	return func(owner string) counterfoil.Caller { return s.core.As(scope, owner) }, func() error {
		stop()
		<-followed
		return s.close()
	}, nil
}

func (c *call) callersOfServer() (as func(owner string) counterfoil.Caller, done func() error, err error) {
	if c.config.Data != "" || c.config.Store != "" {
		return nil, nil, badValue("give either --server, or --data and --store, not both")
	}
	if c.config.Token == "" {
		return nil, nil, badValue("--server needs the token of an admin, who may act for every owner: set COUNTERFOIL_TOKEN")
	}
	to, err := client.New(client.Options{URL: c.config.Server, Token: c.config.Token, UserAgent: "counterfoil/" + version().Version})
	if err != nil {
		return nil, nil, err
	}
	return func(owner string) counterfoil.Caller { return to.As(c.config.Scope, owner) }, func() error { to.Close(); return nil }, nil
}

// proxy answers requests until ctx ends, and then finishes those in progress.
func (c *call) proxy(ctx context.Context, f *proxyFlags, api *guardedAPI, as func(string) counterfoil.Caller) error {
	api.options.As = as
	guard, err := httpguard.New(api.options)
	if err != nil {
		return badValue("%s: %w", f.config, err)
	}
	l, address, err := c.listenForGuard(ctx, f.listen)
	if err != nil {
		return err
	}
	if err := c.greetProxy(f, address); err != nil {
		return errors.Join(err, l.Close())
	}
	return serveUntil(ctx, l, &http.Server{
		Handler: guard.Handler(api.upstream), ReadHeaderTimeout: proxyHeaderTime, ReadTimeout: proxyBodyTime, IdleTimeout: proxyIdleTime,
		MaxHeaderBytes: proxyHeader, ErrorLog: slog.NewLogLogger(api.options.Log.Handler(), slog.LevelDebug),
	}, c.config.DrainTime)
}

// serveUntil serves until ctx ends, and gives requests in progress some time to finish. What is not finished by then has
// an unknown outcome.
func serveUntil(ctx context.Context, l net.Listener, s *http.Server, drain time.Duration) error {
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		stopped <- s.Shutdown(ctx)
	})
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return exit(Internal, "the proxy stopped: %w", err)
	}
	return <-stopped
}

func (c *call) greetProxy(f *proxyFlags, address string) error {
	if c.json {
		return c.printJSON(&proxying{address, f.upstream})
	}
	_, err := fmt.Fprintf(c.Out, "Counterfoil guards %s at %s\n", f.upstream, address)
	return err
}
