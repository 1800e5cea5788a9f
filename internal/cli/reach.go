package cli

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/client"
	"github.com/counterfoil/counterfoil/engine/open"
	"github.com/counterfoil/counterfoil/internal/config"
)

// reached is what a command asks: a server, or a store that is open in this process.
type reached struct {
	*client.Caller
	owner string // it acts as; "" for the one of the token
	stack *stack // nil with a server
	close func() error
	later *call // what is to be opened before the first request; nil once it is
}

// open opens what is to be opened.
func (r *reached) open(ctx context.Context) error {
	if r.later == nil {
		return nil
	}
	at, err := r.later.reach(ctx)
	if err == nil {
		*r = *at
	}
	return err
}

// Do sends a request. The first one opens what the options name: so whatever is wrong on the command line is told first.
func (r *reached) Do(ctx context.Context, req client.Request, answer any) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	return r.Caller.Do(ctx, req, answer)
}

// direct reports whether the command works on a store and not on a server.
func (c *call) direct() bool { return c.config.Server == "" }

// reach opens what the options name. The caller closes it.
func (c *call) reach(ctx context.Context) (*reached, error) {
	if c.direct() {
		return c.reachStore(ctx)
	}
	if c.config.Data != "" || c.config.Store != "" {
		return nil, badValue("give either --server, or --data and --store, not both")
	}
	if c.config.Token == "" {
		return nil, badValue("--server needs a token: set COUNTERFOIL_TOKEN, or token in the file of --config")
	}
	to, err := client.New(client.Options{URL: c.config.Server, Token: c.config.Token, UserAgent: "counterfoil/" + version().Version})
	if err != nil {
		return nil, err
	}
	return &reached{Caller: to.As(c.config.Scope, c.config.Owner), owner: c.config.Owner, close: func() error { to.Close(); return nil }}, nil
}

// reachStore opens the store in this process, and asks it as its operator.
func (c *call) reachStore(ctx context.Context) (*reached, error) {
	p, err := placeOf(c.config)
	if err != nil {
		return nil, err
	}
	silent := slog.New(slog.DiscardHandler)
	s, err := openSoon(ctx, p, c.config, silent)
	if err != nil {
		return nil, err
	}
	owner := cmp.Or(c.config.Owner, access.DefaultOwner)
	who, err := access.Operator(cmp.Or(c.config.Scope, access.DefaultScope), owner)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	h, err := s.server(c.config, silent)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	to, err := client.New(client.Options{URL: "http://localhost", Transport: h.Local(who), RetryFor: -1})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return &reached{Caller: to.As("", ""), owner: owner, stack: s, close: s.close}, nil
}

// asking makes a command that asks a server or a store.
func (a *app) asking(use, short string, args cobra.PositionalArgs, run func(context.Context, *call, *reached) error) *cobra.Command {
	return a.command(use, short, config.Place, args, func(ctx context.Context, c *call) error {
		at := &reached{later: c, close: func() error { return nil }}
		err := run(ctx, c, at)
		return errors.Join(err, at.close())
	})
}

// post sends a POST that does no more when it is sent twice.
func (r *reached) post(ctx context.Context, path string, body, answer any) error {
	return r.Do(ctx, client.Request{Method: http.MethodPost, Path: path, Body: body, Again: true}, answer)
}

// once sends a POST that must not take effect twice.
func (r *reached) once(ctx context.Context, path string, body, answer any) error {
	return r.Do(ctx, client.Request{Method: http.MethodPost, Path: path, Body: body}, answer)
}

// get sends a GET.
func (r *reached) get(ctx context.Context, path string, query url.Values, answer any) error {
	return r.Do(ctx, client.Request{Method: http.MethodGet, Path: path, Query: query, Again: true}, answer)
}

// How long another command that has the store open is waited for, and how often it is looked at.
const (
	lockFor   = 10 * time.Second
	lockEvery = 20 * time.Millisecond
)

// openSoon opens a store, and waits a while if another command has it open. A server is not waited for.
func openSoon(ctx context.Context, p place, c *config.Config, log *slog.Logger) (*stack, error) {
	ctx, cancel := context.WithTimeout(ctx, lockFor)
	defer cancel()
	for {
		// A write that fails is told by the command's own error, which knows what it means.
		s, err := openStack(ctx, p, c, log, func(int) {})
		if _, addr, locked := open.Holder(err); !locked || addr != "" || pause(ctx, lockEvery) != nil {
			return s, err
		}
	}
}
