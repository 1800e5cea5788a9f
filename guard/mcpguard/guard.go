package mcpguard

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/guard/httpguard"
)

// Limits of a guard.
const (
	DefaultInProgress = 256 // guarded calls at once
	MaxTools          = 1000
)

// Options configure a [Guard].
type Options struct {
	// As gives the caller that acts for an owner, such as that of [counterfoil.Counterfoil.As] or of package client.
	// Required.
	As func(owner string) counterfoil.Caller
	// Server names the server of the tools, in fingerprints and in permits. Required. Another name makes every call another
	// call.
	Server string
	// Owner is who makes the calls. Identify names the owner of each request over HTTP instead. One of them is required.
	Owner    string
	Identify httpguard.Identify
	// Run is the run of all calls, to derive keys from and to name budgets by; "": each call may name its own. RunHeader is
	// a header of HTTP that names the run, set by somebody who is trusted to.
	Run       string
	RunHeader string
	// KeyHeader is a header of HTTP that holds the key; "": none.
	KeyHeader string
	// Default is how tools are guarded that Tools does not name. It cannot be ReadOnly.
	Default Policy
	Tools   map[string]Policy
	// Origins are the values of the header Origin that are taken, besides those of this machine when that is where the guard
	// listens.
	Origins    []string
	MaxFrame   int // bytes of a message; 0: DefaultMaxFrame
	InProgress int // guarded calls at once; 0: DefaultInProgress. Beyond: refused as overloaded
	// Log gets what an operator should know. Default: nowhere.
	Log *slog.Logger
}

// Guard makes tools that do not act twice. It is safe for concurrent use.
type Guard struct {
	options Options
	base    *Policy
	tools   map[string]*Policy
	folded  map[string]bool // their names, folded
	slots   chan struct{}
}

// New makes a guard. It fails if an option is missing, out of range, or in the way of another.
func New(o Options) (*Guard, error) {
	switch {
	case o.As == nil:
		return nil, errors.New("mcpguard: As is required")
	case !named(o.Server):
		return nil, errors.New("mcpguard: server is required: a name for the server of the tools, at most 256 bytes")
	case (o.Owner == "") == (o.Identify == nil):
		return nil, errors.New("mcpguard: say who makes the calls: an owner's name, or how requests name theirs")
	case o.MaxFrame < 0 || o.InProgress < 0 || len(o.Tools) > MaxTools:
		return nil, fmt.Errorf("mcpguard: a limit is negative, or there are more than %d tools", MaxTools)
	case len(o.Run) > 256:
		return nil, errors.New("mcpguard: a run has at most 256 bytes")
	}
	if o.Owner != "" {
		if err := httpguard.CheckOwner(o.Owner); err != nil {
			return nil, fmt.Errorf("mcpguard: owner: %w", err)
		}
	}
	take(&o.MaxFrame, DefaultMaxFrame)
	take(&o.InProgress, DefaultInProgress)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, origin := range o.Origins {
		if u, err := url.Parse(origin); err != nil || u.Scheme == "" || u.Host == "" || origin != u.Scheme+"://"+u.Host {
			return nil, errors.New("mcpguard: an origin is scheme://host[:port]")
		}
	}
	g := &Guard{options: o, tools: map[string]*Policy{}, folded: map[string]bool{}, slots: make(chan struct{}, o.InProgress)}
	return g, g.plan()
}

// plan joins the policies of tools and the default one.
func (g *Guard) plan() error {
	if g.options.Default.ReadOnly {
		return errors.New("mcpguard: the default policy cannot be read_only: name the tools that are")
	}
	preset := defaultPolicy()
	base := g.options.Default.over(&preset)
	if err := base.check(); err != nil {
		return fmt.Errorf("mcpguard: the default policy: %w", err)
	}
	g.base = &base
	for name, own := range g.options.Tools {
		p := own
		if p.ReadOnly {
			p = p.over(&preset) // what the default asks for is not asked of it
		} else {
			p = p.over(&base)
		}
		if err := p.check(); err != nil {
			return fmt.Errorf("mcpguard: tool %q: %w", name, err)
		}
		g.tools[name], g.folded[foldTool(name)] = &p, true
	}
	return nil
}

// named reports whether a name can be part of a permit.
func named(name string) bool {
	return strings.TrimSpace(name) != "" && len(name) <= 256
}

// identify completes a call by who makes it, and in which run.
func (g *Guard) identify(c *toolCall, r *http.Request) error {
	c.owner, c.run = g.options.Owner, g.options.Run
	if r == nil {
		return nil
	}
	c.header = r.Header
	if g.options.RunHeader != "" {
		runs := r.Header.Values(g.options.RunHeader)
		if len(runs) > 1 || len(runs) == 1 && (runs[0] == "" || len(runs[0]) > 256) {
			return errors.New("the header " + g.options.RunHeader + " must be there once, with at most 256 bytes")
		}
		if len(runs) == 1 {
			c.run = runs[0]
		}
	}
	if g.options.Identify == nil {
		return nil
	}
	owner, err := g.options.Identify(r)
	if err != nil {
		return err
	}
	c.owner = owner
	return httpguard.CheckOwner(owner)
}
