package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/keyring"
	"github.com/counterfoil/counterfoil/store"
)

// Limits bounds what a server takes on at once. A zero field means its default.
type Limits struct {
	Requests    int           // in progress; beyond it 503 overloaded. Default 1,024
	Connections int           // open; beyond it new ones wait unaccepted. Default 4,096
	HeaderBytes int           // of one request; beyond it 431. Default 16 KiB
	BodyBytes   int64         // of all large bodies that are held at once; beyond it 503 overloaded. Default 256 MiB
	Receipt     int64         // largest body of a route that takes a receipt. Default 4 MiB
	Arguments   int64         // largest body of a route that takes a call's arguments. Default 1 MiB
	HeaderTime  time.Duration // until the headers are complete; then the connection is closed. Default 10 s
	BodyTime    time.Duration // until the body is complete; then 408. Default 15 s
	HandleTime  time.Duration // until the capability must have answered. Default 30 s
	WriteTime   time.Duration // until the answer is written; then the connection is closed. Default 30 s
	IdleTime    time.Duration // between two requests of a connection. Default 2 min
	DrainTime   time.Duration // to finish what is in progress when the server stops. Default 30 s
}

// smallBody is the largest body of a route that takes neither arguments nor a receipt.
const smallBody = 64 << 10

func (l Limits) withDefaults() Limits {
	l.Requests = cmp.Or(l.Requests, 1024)
	l.Connections = cmp.Or(l.Connections, 4096)
	l.HeaderBytes = cmp.Or(l.HeaderBytes, 16<<10)
	l.BodyBytes = cmp.Or(l.BodyBytes, 256<<20)
	l.Receipt = cmp.Or(l.Receipt, 4<<20)
	l.Arguments = cmp.Or(l.Arguments, 1<<20)
	l.HeaderTime = cmp.Or(l.HeaderTime, 10*time.Second)
	l.BodyTime = cmp.Or(l.BodyTime, 15*time.Second)
	l.HandleTime = cmp.Or(l.HandleTime, 30*time.Second)
	l.WriteTime = cmp.Or(l.WriteTime, 30*time.Second)
	l.IdleTime = cmp.Or(l.IdleTime, 2*time.Minute)
	l.DrainTime = cmp.Or(l.DrainTime, 30*time.Second)
	return l
}

// Options is what a server is made of.
type Options struct {
	Access  *access.Access           // who a request is from. Required
	Store   *store.Store             // Required
	Keys    *keyring.Keyring         // Required
	Core    *counterfoil.Counterfoil // all capabilities on the store. Required
	Log     *slog.Logger             // nil: nothing is logged
	Clock   clock.Clock              // nil: the machine's
	Entropy entropy.Source           // nil: the machine's
	Limits  Limits
	Version string // shown by /healthz and the documents
}

// Server serves Counterfoil's HTTP interface. It is safe for concurrent use.
type Server struct {
	access  *access.Access
	health  Health
	scopes  *store.Store
	engine  engine.Engine
	keys    *keyring.Keyring
	core    *counterfoil.Counterfoil
	log     *slog.Logger
	clock   clock.Clock
	entropy entropy.Source
	limits  Limits
	version string

	routes  []Route
	mux     *http.ServeMux
	metrics *metrics
	openapi func() ([]byte, error)
	docs    func() ([]byte, error)

	inProgress atomic.Int64
	bodyBytes  atomic.Int64
	draining   atomic.Bool
}

// New returns a server that has not been started. It fails if something required is missing.
func New(o Options) (*Server, error) {
	if o.Access == nil || o.Store == nil || o.Keys == nil || o.Core == nil {
		return nil, errors.New("server: an option that is required is missing")
	}
	s := &Server{
		access: o.Access, health: o.Store, scopes: o.Store, engine: o.Store.Engine(), keys: o.Keys, core: o.Core, log: o.Log, clock: o.Clock, entropy: o.Entropy,
		limits: o.Limits.withDefaults(), version: cmp.Or(o.Version, "unknown"),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.clock == nil {
		s.clock = clock.System{}
	}
	if s.entropy == nil {
		s.entropy = entropy.System
	}
	s.metrics = newMetrics(s)
	if err := s.addRoutes(); err != nil {
		return nil, err
	}
	return s, nil
}

// Serve answers what comes in over the listener until ctx ends; then it drains: new requests are refused as
// [api.Draining], those in progress are finished, and the listener is closed. It returns nil once all are finished, and
// an error if they were not in time or the listener failed.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler:                      s,
		ReadHeaderTimeout:            s.limits.HeaderTime,
		WriteTimeout:                 s.limits.BodyTime + s.limits.HandleTime + s.limits.WriteTime,
		IdleTimeout:                  s.limits.IdleTime,
		MaxHeaderBytes:               s.limits.HeaderBytes,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		// Cancelled only when draining took too long; a request's own context ends with its client.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(limitConnections(l, s.limits.Connections)) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.Drain()
	s.log.Info("draining", "in_progress", s.inProgress.Load())
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.DrainTime)
	defer cancel()
	err := h.Shutdown(late)
	<-failed //nolint:errcheck // http.ErrServerClosed: the listener is closed by us
	if err != nil {
		_ = h.Close()
		return errors.New("server: requests were still in progress when the time to drain was over")
	}
	return nil
}

// Drain makes the server refuse every new request but those about its own state.
func (s *Server) Drain() { s.draining.Store(true) }
