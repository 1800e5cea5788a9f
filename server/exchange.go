package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/internal/clock"
)

// exchange is one request and its answer. It is the ResponseWriter that everything behind [Server.ServeHTTP] gets.
type exchange struct {
	http.ResponseWriter
	r       *http.Request
	started time.Duration     // on the boot clock
	route   *Route            // nil until one is found
	who     *access.Principal // nil on public routes and until admitted
	// repeatable: the request carries what makes its repetition known.
	repeatable bool
	bodyRead   bool

	status   int    // 0 until the answer has begun
	outcome  string // what the header Counterfoil-Outcome says
	instance string // of a problem
}

// WriteHeader notes the status.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write notes that the answer has begun.
func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	return x.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, r: r, started: s.clock.Boot(), outcome: outcomeOK}
	defer x.linger()
	defer s.finish(x)
	defer s.recoverPanic(x)
	if !isClean(r.URL.EscapedPath()) {
		s.refuse(x, api.NewProblem(api.NotFound, "no such path"))
		return
	}
	s.mux.ServeHTTP(x, r)
}

// isClean reports whether the multiplexer would take the path as it is, and not redirect to another spelling.
func isClean(p string) bool {
	if !strings.HasPrefix(p, "/") {
		return false
	}
	clean := path.Clean(p)
	return clean == p || clean != "/" && clean+"/" == p
}

// serve answers a request for a route.
func (s *Server) serve(x *exchange) {
	if !x.route.always {
		if err := s.enter(); err != nil {
			s.refuse(x, err)
			return
		}
		defer s.leave()
	}
	answer := s.answer
	if x.route.page != nil {
		answer = x.route.page
	}
	if err := answer(x); err != nil {
		s.refuse(x, err)
	}
}

// enter takes one of the places for requests in progress.
func (s *Server) enter() error {
	if s.draining.Load() {
		return api.NewProblem(api.Draining, "the server is stopping")
	}
	if s.inProgress.Add(1) > int64(s.limits.Requests) {
		s.inProgress.Add(-1)
		return api.NewProblem(api.Overloaded, "too many requests are in progress")
	}
	return nil
}

func (s *Server) leave() { s.inProgress.Add(-1) }

// answer reads the request, calls the capability and writes what it says.
func (s *Server) answer(x *exchange) error {
	route := x.route
	ctx, cancel := context.WithTimeout(x.r.Context(), s.limits.BodyTime+s.limits.HandleTime)
	defer cancel()
	if err := s.identify(ctx, x); err != nil {
		return err
	}
	req := reflect.New(route.Request)
	if err := s.read(x, req.Elem()); err != nil {
		return err
	}
	x.repeatable = route.form.repeatable(req.Elem())
	if s.clock.Boot()-x.started > freshFor {
		if err := s.identify(ctx, x); err != nil {
			return err
		}
	}
	status, answer, err := route.call(ctx, x.who, req.Interface())
	if err != nil {
		return err
	}
	return s.writeJSON(x, status, answer)
}

// freshFor is how long a request may take to arrive, from its headers on, before its sender is identified anew: a token
// that was revoked meanwhile must not be acted on.
const freshFor = time.Second

func (s *Server) identify(ctx context.Context, x *exchange) error {
	if x.route.Public() {
		return nil
	}
	who, err := s.admit(ctx, x.r, x.route)
	if err != nil {
		return err
	}
	x.who = who
	return nil
}

// recoverPanic answers a panic as an internal error. What it says goes nowhere but to the log, and there only if the
// runtime said it: anything else may hold a value of the request.
func (s *Server) recoverPanic(x *exchange) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	s.metrics.panics.Inc()
	attrs := []any{"route", x.pattern(), "stack", string(debug.Stack())}
	if fault, ok := v.(runtime.Error); ok {
		attrs = append(attrs, "error", fault.Error())
	}
	s.log.Error("a handler panicked", attrs...)
	if x.status != 0 {
		// The answer has begun: only a broken connection says that it is none.
		panic(http.ErrAbortHandler)
	}
	s.refuse(x, api.NewProblem(api.Internal, ""))
}

// unread reports whether the client may still be sending a body that nobody wants.
func (x *exchange) unread() bool { return x.r.ContentLength != 0 && !x.bodyRead }

// How much of an unwanted body is taken in after its refusal, and for how long.
const (
	lingerBytes = 64 << 20
	lingerTime  = 2 * time.Second
)

// linger takes in the rest of a body that was refused unread, and forgets it. Without that the connection would be reset
// while the client is still sending, and many clients would report that instead of the answer (RFC 9112 9.6).
func (x *exchange) linger() {
	// A client that waits to be asked for its body sends none.
	if !x.unread() || x.status == 0 || x.r.Header.Get("Expect") != "" {
		return
	}
	connection := http.NewResponseController(x)
	if connection.EnableFullDuplex() != nil || connection.Flush() != nil {
		return
	}
	if connection.SetReadDeadline(clock.System{}.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, x.r.Body, lingerBytes)
}

// finish counts the request and logs it.
func (s *Server) finish(x *exchange) {
	took := s.clock.Boot() - x.started
	s.metrics.observe(x, took)
	level := slog.LevelDebug
	switch api.Code(x.outcome) {
	case api.Internal, api.RecordCorrupt, api.CommitUnknown, api.KeyUnknown:
		level = slog.LevelWarn
	}
	if !s.log.Enabled(x.r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("route", x.pattern()), slog.Int("status", x.status), slog.String("outcome", x.outcome),
		slog.Duration("took", took),
	}
	if x.who != nil {
		attrs = append(attrs, slog.String("token_name", x.who.Token))
	}
	if x.instance != "" {
		attrs = append(attrs, slog.String("instance", x.instance))
	}
	s.log.LogAttrs(x.r.Context(), level, "request", attrs...)
}

// pattern names the route, never the path: that may hold what a client should not have put there.
func (x *exchange) pattern() string {
	if x.route == nil {
		return "none"
	}
	return x.route.Pattern()
}
