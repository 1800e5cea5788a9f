package httpguard

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/textproto"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/api"
)

// Limits of a guard.
const (
	DefaultMaxBody    = 1 << 20  // bytes of a request
	DefaultMaxAnswer  = 15 << 20 // bytes of an answer
	DefaultInProgress = 1024     // guarded requests at once
	MaxRoutes         = 1000
)

// Options configure a [Guard].
type Options struct {
	// As gives the caller that acts for an owner, such as that of [counterfoil.Counterfoil.As] or of package client.
	// Required.
	As func(owner string) counterfoil.Caller
	// Identify names the owner of a request. Required.
	Identify Identify
	// KeyHeader is the header that holds the key; "" is Idempotency-Key.
	KeyHeader string
	// Default is how requests are guarded that no route matches. Its zero value guards POST and PATCH, requires a key, and
	// records by the preset Strict.
	Default Policy
	Routes  []Route
	// RefuseUnmatched refuses requests of guarded methods that no route matches, with 404 or 405, instead of guarding them
	// by Default.
	RefuseUnmatched bool
	// Effects promises that everything that has effects behind the guard is wrapped by [Effects], or calls [Reached] first.
	// Then a 401, 403, 408, 425 or 429 of a request that has not come there is the word of middleware: under the preset
	// Strict it takes the claim back, so that the key can be used again.
	Effects bool
	// ReplayHeaders are headers of an answer that its replay has too, besides those of [ReplayedHeaders].
	ReplayHeaders []string
	MaxBody       int64 // bytes of a guarded request; 0: DefaultMaxBody. Beyond: 413
	MaxAnswer     int64 // bytes of an answer; 0: DefaultMaxAnswer. Beyond: the outcome counts as unknown
	InProgress    int   // guarded requests at once; 0: DefaultInProgress. Beyond: 503
	// ShowFigures shows whoever is refused for a budget where it stands, also in the headers RateLimit and
	// RateLimit-Policy. Else only its name is shown.
	ShowFigures bool
	// Log gets what an operator should know. Default: nowhere.
	Log *slog.Logger
}

// Guard makes handlers that do not act twice. It is safe for concurrent use.
type Guard struct {
	options Options
	base    *Policy
	routes  *http.ServeMux
	folded  *http.ServeMux // the same in small letters
	kept    []string
	slots   chan struct{}
	counts  counts
}

type counts struct{ untold, uncaptured atomic.Int64 }

// Counts are what an operator should look at.
type Counts struct {
	// Untold are answers that did not say what they cost, for which the whole of what was held was captured.
	Untold int64
	// Uncaptured are answers that cost more than was held for them and than their budgets had left.
	Uncaptured int64
}

// Counts tells what has happened since the guard was made.
func (g *Guard) Counts() Counts {
	return Counts{Untold: g.counts.untold.Load(), Uncaptured: g.counts.uncaptured.Load()}
}

// New makes a guard. It fails if an option is missing, out of range, or in the way of another.
func New(o Options) (*Guard, error) {
	if o.As == nil || o.Identify == nil {
		return nil, errors.New("httpguard: As and Identify are required: without an owner nothing can be guarded")
	}
	if o.KeyHeader == "" {
		o.KeyHeader = DefaultKeyHeader
	}
	if !token(o.KeyHeader) {
		return nil, errors.New("httpguard: KeyHeader is no name of a header")
	}
	if o.MaxBody < 0 || o.MaxAnswer < 0 || o.InProgress < 0 || len(o.Routes) > MaxRoutes {
		return nil, fmt.Errorf("httpguard: a limit is negative, or there are more than %d routes", MaxRoutes)
	}
	o.MaxBody, o.MaxAnswer = positive(o.MaxBody, DefaultMaxBody), positive(o.MaxAnswer, DefaultMaxAnswer)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.RefuseUnmatched && len(o.Routes) == 0 {
		return nil, errors.New("httpguard: without routes, refusing what no route matches refuses everything")
	}
	kept, err := keptHeaders(o.ReplayHeaders)
	if err != nil {
		return nil, err
	}
	g := &Guard{options: o, kept: kept, slots: make(chan struct{}, positive(o.InProgress, DefaultInProgress))}
	return g, g.plan()
}

func positive[T int | int64](n, fallback T) T {
	if n == 0 {
		return fallback
	}
	return n
}

// plan joins routes and default policy.
func (g *Guard) plan() error {
	preset := defaultPolicy()
	base := g.options.Default.over(&preset)
	if err := base.check(); err != nil {
		return fmt.Errorf("httpguard: the default policy: %w", err)
	}
	g.base, g.routes, g.folded = &base, http.NewServeMux(), http.NewServeMux()
	for _, r := range g.options.Routes {
		p := r.Policy.over(&base)
		if err := p.check(); err != nil {
			return fmt.Errorf("httpguard: route %q: %w", r.Pattern, err)
		}
		if err := handle(g.routes, r.Pattern, &p); err != nil {
			return err
		}
		_ = handle(g.folded, foldPattern(r.Pattern), &p) // of two that differ in letter case the first counts
	}
	return nil
}

// foldPattern gives a pattern in small letters, but for its method.
func foldPattern(pattern string) string {
	if i := strings.LastIndexAny(pattern, " \t"); i >= 0 {
		return pattern[:i+1] + strings.ToLower(pattern[i+1:])
	}
	return strings.ToLower(pattern)
}

// otherwise reports whether there are servers that take the path of a request for that of a route with another policy:
// in other letter case, with a slash at its end, or with parameters (RFC 3986, 3.3).
func (g *Guard) otherwise(r *http.Request, found *Policy, pattern string) bool {
	if strings.HasSuffix(pattern, r.URL.Path) {
		return false // a route says just this
	}
	segments := strings.Split(strings.ToLower(r.URL.Path), "/")
	for i, s := range segments {
		s, _, _ = strings.Cut(s, ";")
		segments[i] = strings.TrimSpace(s)
	}
	folded := strings.TrimRight(strings.Join(segments, "/"), "/")
	host := strings.TrimSuffix(strings.ToLower(r.Host), ".")
	h, pattern := g.folded.Handler(&http.Request{Method: r.Method, Host: host, URL: &url.URL{Path: cmp.Or(folded, "/")}})
	e, ok := h.(entry)
	if !ok {
		return pattern != "" // the path of a route that ends with a slash, without it
	}
	return e.policy != found && !reflect.DeepEqual(e.policy, found)
}

// handle registers a route; a bad pattern, or two that conflict, make http.ServeMux panic.
func handle(routes *http.ServeMux, pattern string, p *Policy) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("httpguard: route %q: %v", pattern, reason)
		}
	}()
	routes.Handle(pattern, entry{p})
	return nil
}

// entry makes a policy an entry of http.ServeMux, which is only asked which one matches.
type entry struct{ policy *Policy }

func (entry) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }

// policyOf finds the policy of a request; false if its path has two readings, so that the handler may take it for the path
// of another route. If no route matches, unmatched answers 404 or 405.
func (g *Guard) policyOf(r *http.Request) (p *Policy, isPlain bool, unmatched http.Handler) {
	if len(g.options.Routes) == 0 {
		return g.base, true, nil
	}
	h, pattern := g.routes.Handler(r)
	if e, ok := h.(entry); ok {
		return e.policy, plain(r) && !g.otherwise(r, e.policy, pattern), nil
	}
	return g.base, pattern == "" && plain(r) && !g.otherwise(r, g.base, ""), h
}

// nowhere refuses a request that no route matches.
func nowhere(w http.ResponseWriter, r *http.Request, unmatched http.Handler) {
	a := newAnswer(math.MaxInt64, false)
	unmatched.ServeHTTP(a, r)
	if a.status != http.StatusMethodNotAllowed {
		refuse(w, api.NewProblem(api.NotFound, "no route of this guard matches the path"))
		return
	}
	w.Header()["Allow"] = a.sent["Allow"]
	refuse(w, api.NewProblem(api.MethodNotAllowed, "no route of this guard matches the method"))
}

// plain reports whether a path is in the one form that everybody reads alike.
func plain(r *http.Request) bool {
	clean := path.Clean(r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") && clean != "/" {
		clean += "/"
	}
	raw := strings.ToLower(r.URL.EscapedPath())
	return r.URL.Path == clean && !strings.Contains(raw, "%2f") && !strings.Contains(raw, "%5c") && !strings.Contains(raw, "%2e") &&
		!strings.Contains(raw, "%00") && !strings.Contains(raw, `\`)
}

// overrides are headers by which some frameworks take another method for the request's own.
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// overridden looks for these headers. Where headers become variables, a name with _ is one with -.
func overridden(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "X") && slices.Contains(overrides, http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))) {
			return true
		}
	}
	return false
}

func (p *Policy) check() error {
	for _, m := range p.Methods {
		if !token(m) || m != strings.ToUpper(m) {
			return errors.New("a method is a word of capital letters")
		}
		if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect}, m) {
			return errors.New("a safe method, or CONNECT, has nothing to guard")
		}
	}
	switch {
	case len(p.Methods) == 0:
		return errors.New("no method is guarded")
	case !p.Keys.known():
		return errors.New("keys are required, optional or derived")
	case !p.Record.known():
		return errors.New("the preset is strict, stripe or success-only")
	case p.Lease < counterfoil.MinLease || p.Lease > counterfoil.MaxLease:
		return fmt.Errorf("a lease is %s to %s", counterfoil.MinLease, counterfoil.MaxLease)
	case p.Wait < 0 || p.Wait > MaxWait:
		return fmt.Errorf("a request waits for at most %s", MaxWait)
	case p.Timeout < time.Millisecond || p.Timeout > 24*time.Hour:
		return errors.New("a timeout is 1ms to 24h")
	}
	for _, status := range slices.Concat(p.Also, p.Never, p.Free) {
		if status < 200 || status > 599 {
			return errors.New("a status is 200 to 599")
		}
	}
	return errors.Join(p.Fingerprint.check(), p.charges())
}

// charges looks at what only a guarded request can be asked for.
func (p *Policy) charges() error {
	if p.Keys == Optional && (len(p.Spend) > 0 || len(p.Meters) > 0 || p.Capability != "") {
		return errors.New("a budget or a permit needs keys that are required or derived: without a key nothing would be charged")
	}
	if (p.Capability == "") != (p.Server == "") {
		return errors.New("a permit needs both the capability and the server that it is bound to")
	}
	return meters(p.Meters).check(p.RecordFinal)
}

func (f *Fingerprint) check() error {
	if len(f.Only) > 0 && len(f.Except) > 0 {
		return errors.New("a fingerprint has only some fields, or all except some, not both")
	}
	for _, pointer := range slices.Concat(f.Only, f.Except) {
		if err := checkPointer(pointer); err != nil {
			return err
		}
	}
	return nil
}

// token reports whether s is a token of RFC 9110, as methods and names of headers are.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
	}) && textproto.TrimString(s) == s
}
