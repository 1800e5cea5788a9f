package httpguard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/guard"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
)

// HeaderPermit holds a permit, as base64url of its JSON.
const HeaderPermit = "Counterfoil-Permit"

// Handler puts the guard in front of next, which must not be called in another way. next gets a context that does not end
// when the client leaves, and its answer reaches the client when it is recorded: it can neither stream nor take the
// connection over.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != strings.ToUpper(r.Method) || r.Method == "PRI" { // which begins a connection of HTTP/2
			refuse(w, api.NewProblem(api.Malformed, "a method is taken in capital letters alone"))
			return
		}
		if overridden(r.Header) {
			refuse(w, api.NewProblem(api.Malformed, "a header that overrides the method is not taken: send the method itself"))
			return
		}
		p, plain, unmatched := g.policyOf(r)
		if plain && unmatched != nil && g.options.RefuseUnmatched && g.anywhere(r.Method) {
			nowhere(w, r, unmatched)
			return
		}
		if !slices.Contains(p.Methods, r.Method) {
			if g.anywhere(r.Method) && !plain {
				refuse(w, api.NewProblem(api.Malformed, "the path is not in its plain form"))
				return
			}
			next.ServeHTTP(w, oneProtocol(r, false))
			return
		}
		if !plain {
			refuse(w, api.NewProblem(api.Malformed, "the path is not in its plain form: no empty or dotted segments, no encoded slash or dot, and no route in another spelling"))
			return
		}
		c := &call{guard: g, policy: p, request: oneProtocol(r, true), next: next, answer: newAnswer(g.options.MaxAnswer, p.RecordFinal)}
		c.serve(w)
	})
}

// anywhere reports whether any route guards a method.
func (g *Guard) anywhere(method string) bool {
	return slices.ContainsFunc(g.options.Routes, func(r Route) bool { return slices.Contains(r.Policy.Methods, method) }) ||
		slices.Contains(g.base.Methods, method)
}

// oneProtocol gives the request without the wish for another protocol, through which any other request could come unguarded.
// WebSocket alone may be asked for, by GET; a guarded request is refused for it later.
func oneProtocol(r *http.Request, guarded bool) *http.Request {
	wishes := r.Header["Upgrade"]
	if len(wishes) == 0 || len(wishes) == 1 && strings.EqualFold(wishes[0], "websocket") && (guarded || r.Method == http.MethodGet) {
		return r
	}
	r = r.WithContext(r.Context())
	r.Header = r.Header.Clone()
	r.Header.Del("Upgrade")
	return r
}

// call is one guarded request.
type call struct {
	guard   *Guard
	policy  *Policy
	request *http.Request
	next    http.Handler
	caller  counterfoil.Caller
	owner   string
	body    []byte
	begin   counterfoil.BeginParams
	cost    amounts
	answer  *answer
	word    word
	lost    atomic.Bool        // the lease, so that the outcome counts as unknown already
	held    *counterfoil.Begun // while the handler works, and after it if it left the outcome open
}

// Why a handler's answer is not recorded.
var (
	errReleased = errors.New("httpguard: the handler said that nothing was performed")
	errOpen     = errors.New("httpguard: the handler left the outcome open")
	errLate     = errors.New("httpguard: the lease was over before the handler answered")
)

func (c *call) serve(w http.ResponseWriter) {
	select {
	case c.guard.slots <- struct{}{}:
		defer func() { <-c.guard.slots }()
	default:
		refuse(w, api.NewProblem(api.Overloaded, "as many guarded requests are in progress as are taken; nothing was done"))
		return
	}
	pass, p := c.prepare(w)
	switch {
	case p != nil:
		refuse(w, p)
		return
	case pass:
		c.next.ServeHTTP(w, c.request)
		return
	}
	defer c.shorten() // after a panic too: nobody should wait for a lease that nobody holds
	ran, err := c.run()
	c.conclude(w, &ran, err)
}

// prepare does everything that comes before the claim. It reports whether the request is not to be guarded.
func (c *call) prepare(w http.ResponseWriter) (pass bool, refused *api.Problem) {
	r := c.request
	if r.ContentLength > c.guard.options.MaxBody {
		return false, api.NewProblem(api.TooLarge, "the body is larger than this route takes")
	}
	if r.Header.Get("Upgrade") != "" {
		return false, api.NewProblem(api.Invalid, "a guarded request cannot switch protocols")
	}
	if !c.policy.RecordFinal && strings.EqualFold(strings.TrimSpace(r.Header.Get("Accept")), "text/event-stream") {
		return false, api.NewProblem(api.Invalid, "a guarded request cannot be answered by a stream of events")
	}
	key, err := keyOf(r.Header, c.guard.options.KeyHeader)
	missing := errors.Is(err, errKeyMissing)
	if missing && c.policy.Keys == Optional {
		return true, nil
	}
	if p := c.identify(); p != nil {
		return false, p
	}
	if err != nil && !(missing && c.policy.Keys == Derived) {
		return false, api.NewProblem(api.Malformed, "the header "+c.guard.options.KeyHeader+" "+err.Error())
	}
	if p := c.read(w); p != nil {
		return false, p
	}
	same, err := c.policy.Fingerprint.of(r, c.body)
	if err != nil {
		return false, api.NewProblem(api.Malformed, "the request cannot be compared with others: "+err.Error())
	}
	if missing {
		key = "derived-" + hex.EncodeToString(same[:])
	}
	c.begin = counterfoil.BeginParams{Key: key, Fingerprint: same, Lease: c.policy.Lease, Spend: c.policy.Spend}
	if p := c.meter(); p != nil {
		return false, p
	}
	return false, c.permit()
}

func (c *call) identify() *api.Problem {
	owner, err := c.guard.options.Identify(c.request)
	if err == nil {
		err = checkOwner(owner)
	}
	if err != nil {
		return api.NewProblem(api.Unauthenticated, err.Error())
	}
	c.owner, c.caller = owner, c.guard.options.As(owner)
	return nil
}

// readAhead is how many bytes of a body there is room for before they come.
const readAhead = 16 << 10

// read takes the body whole.
func (c *call) read(w http.ResponseWriter) *api.Problem {
	room := min(max(c.request.ContentLength, 0), readAhead) + bytes.MinRead // what is only announced takes no memory
	into := bytes.NewBuffer(make([]byte, 0, room))
	_, err := into.ReadFrom(http.MaxBytesReader(w, c.request.Body, c.guard.options.MaxBody))
	c.body = into.Bytes()
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return api.NewProblem(api.TooLarge, "the body is larger than this route takes")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return api.NewProblem(api.RequestTimeout, "the body was not complete in time")
	}
	return api.NewProblem(api.Malformed, "the body ended before its end")
}

// meter finds out what the call costs, as far as that is known before it.
func (c *call) meter() *api.Problem {
	if len(c.policy.Meters) == 0 {
		return nil
	}
	if meters(c.policy.Meters).reads() && !onlyJSON(c.request.Header) {
		return api.NewProblem(api.Malformed, "the route is metered by the body: want one Content-Type, application/json, in UTF-8 and not compressed; nothing was done")
	}
	var p *api.Problem
	if c.cost, p = meters(c.policy.Meters).before(essence(c.request.Header["Content-Type"]), c.body, c.policy.RecordFinal); p != nil {
		return p
	}
	var err error
	if c.begin.Spend, err = budget.Sum(c.policy.Spend, c.cost.exact); err != nil {
		return api.NewProblem(api.Invalid, "the amounts of the request are above what a budget can count; nothing was done")
	}
	held, err := budget.Sum(c.cost.estimates)
	if err != nil {
		return api.NewProblem(api.Invalid, "the estimated amounts are above what a budget can count; nothing was done")
	}
	if len(held) > 0 {
		c.caller = &holder{Caller: c.caller, owner: c.owner, entries: held}
	}
	return nil
}

// permit adds the permit that the route asks for to the claim.
func (c *call) permit() *api.Problem {
	if c.policy.Capability == "" {
		return nil
	}
	values := c.request.Header[HeaderPermit]
	if len(values) != 1 {
		return api.NewProblem(api.PermitMalformed, "the header "+HeaderPermit+" must be there once: this route asks for a permit")
	}
	wire, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(values[0], "="))
	if err != nil || strings.ContainsAny(values[0], "\r\n") {
		return api.NewProblem(api.PermitMalformed, "the header "+HeaderPermit+" is no base64url")
	}
	if carried, err := permit.Decode(wire); err == nil && carried.Nonce.ReservedHoldID != "" && len(c.cost.estimates) > 0 {
		return api.NewProblem(api.Invalid, "the permit carries a hold, and this route makes its own: ask for a permit without one")
	}
	hash, err := ParameterHash(c.body, c.request.URL.RawQuery)
	if err != nil {
		return api.NewProblem(api.Malformed, "the query cannot be part of a permit: "+err.Error())
	}
	c.begin.Permit = wire
	c.begin.Expected = permit.Expected{
		Subject: c.owner, Capability: c.policy.Capability, Server: c.policy.Server, Tool: c.request.Method + " " + c.request.URL.EscapedPath(),
		RequestID: c.begin.Key, ParameterHash: hash,
	}
	return nil
}

// ParameterHash is the parameter_hash of a permit for an HTTP request: that of an object with the members body_sha256
// (lower-case hex, of no bytes if there is no body) and query (as sent, without the question mark).
func ParameterHash(body []byte, query string) (string, error) {
	sum := sha256.Sum256(body)
	quoted, err := quote(query)
	if err != nil {
		return "", err
	}
	return permit.ParameterHash([]byte(`{"body_sha256":"` + hex.EncodeToString(sum[:]) + `","query":` + quoted + `}`))
}

// run makes the guarded call, and waits for another one of the key as long as the policy says.
func (c *call) run() (counterfoil.Ran, error) {
	ran, err := c.once()
	if c.policy.Wait == 0 || !errors.Is(err, operation.ErrInFlight) {
		return ran, err
	}
	patience := time.NewTimer(c.policy.Wait)
	defer patience.Stop()
	for pause := 20 * time.Millisecond; errors.Is(err, operation.ErrInFlight); pause = min(2*pause, time.Second) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-patience.C:
			timer.Stop()
			return ran, err
		case <-c.request.Context().Done():
			timer.Stop()
			return ran, err
		}
		ran, err = c.once()
	}
	return ran, err
}

// claimFor bounds a claim.
const claimFor = time.Minute

// once makes the guarded call once. A client that leaves does not cut its claim off, which nobody would hold then.
func (c *call) once() (counterfoil.Ran, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.request.Context()), claimFor)
	defer cancel()
	return counterfoil.Run(ctx, watched{c.caller, &c.lost}, c.begin, c.effect)
}

// effect calls the handler. It no longer depends on the client: what has begun is finished and recorded.
func (c *call) effect(ctx context.Context, begun counterfoil.Begun) (counterfoil.Result, error) {
	c.held = &begun
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.policy.Timeout)
	defer cancel()
	r := c.request.WithContext(context.WithValue(ctx, wordKey{}, &c.word))
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(c.body)), int64(len(c.body)), nil
	r.Header = c.passedOn()
	c.answer.collect(c.next, r)
	c.answer.finish()
	switch {
	case c.word.unknown.Load(), errors.Is(c.answer.failed, errBrokenOff):
		return counterfoil.Result{}, errOpen
	case c.word.none.Load():
		c.held = nil
		return counterfoil.Result{}, counterfoil.NotPerformed(errReleased)
	case c.answer.failed != nil:
		return counterfoil.Result{}, errOpen
	case c.guard.options.Effects && !c.word.reached.Load() && c.policy.releases(c.answer.status):
		c.held = nil
		return counterfoil.Result{}, counterfoil.NotPerformed(errReleased)
	case !c.policy.records(c.answer.status):
		return counterfoil.Result{}, errOpen
	case c.lost.Load():
		return counterfoil.Result{}, errLate
	}
	c.held = nil
	return counterfoil.Result{Receipt: c.answer.receipt(c.guard.kept), Capture: c.capture(begun.ID)}, nil
}

// passedOn are the headers that the handler gets.
func (c *call) passedOn() http.Header {
	h := c.request.Header
	reads := len(c.cost.estimates) > 0 // what an answer costs cannot be read if it is compressed
	if !reads && h.Get(HeaderPermit) == "" && h.Get("Expect") == "" {
		return h
	}
	h = h.Clone()
	h.Del(HeaderPermit) // used up
	h.Del("Expect")     // the body is here
	if reads {
		h.Set("Accept-Encoding", "identity")
	}
	return h
}

// capture gives what the answer cost of what was held for it; nil if nothing was.
func (c *call) capture(operation string) *[]counterfoil.Entry {
	if len(c.cost.estimates) == 0 {
		return nil
	}
	entries, untold := meters(c.policy.Meters).after(c.cost.estimates, c.answer)
	switch {
	case len(untold) == 0:
	case slices.Contains(c.policy.Free, c.answer.status):
		return &[]counterfoil.Entry{}
	default:
		c.guard.counts.untold.Add(1)
		c.guard.options.Log.Error("an answer does not say what it cost: the whole of what was held is charged", "operation", operation,
			"status", c.answer.status, "budgets", untold)
	}
	return &entries
}

// watched is a Caller that notices when a lease is lost.
type watched struct {
	counterfoil.Caller
	lost *atomic.Bool
}

// Renew renews a lease.
func (w watched) Renew(ctx context.Context, p counterfoil.RenewParams) (counterfoil.Renewed, error) {
	renewed, err := w.Caller.Renew(ctx, p)
	if errors.Is(err, operation.ErrOutcomeUnknown) || errors.Is(err, operation.ErrNotHolder) || errors.Is(err, operation.ErrNotPending) {
		w.lost.Store(true)
	}
	return renewed, err
}

// shorten lets a lease that nobody holds any more run out soon.
func (c *call) shorten() {
	if c.held == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.request.Context()), c.policy.Lease)
	defer cancel()
	if _, err := c.caller.Renew(ctx, counterfoil.RenewParams{ID: c.held.ID, Token: c.held.Token, Lease: counterfoil.MinLease}); err != nil {
		c.guard.options.Log.Debug("a lease whose outcome is open runs on", "operation", c.held.ID, "error", err)
	}
}

// conclude answers the client.
func (c *call) conclude(w http.ResponseWriter, ran *counterfoil.Ran, err error) {
	log := c.guard.options.Log
	switch {
	case errors.Is(err, errReleased):
		var joined interface{ Unwrap() []error }
		if errors.As(err, &joined) {
			log.Error("a claim could not be taken back: its outcome will count as unknown", "operation", ran.Begun.ID, "error", err)
		}
		c.answer.give(w, "not_performed")
	case errors.Is(err, errOpen):
		log.Warn("the outcome of a request is open", "operation", ran.Begun.ID, "status", c.answer.status, "reason", c.answer.failed)
		if c.word.unknown.Load() || c.answer.failed != nil {
			refuse(w, api.NewProblem(api.OutcomeUnknown, "the request may have had its effect or not; an operator must find out and resolve it"))
			return
		}
		c.answer.give(w, string(api.OutcomeUnknown))
	case errors.Is(err, errLate):
		log.Error("an answer came after its lease was over: its outcome counts as unknown", "operation", ran.Begun.ID, "status", c.answer.status)
		c.answer.give(w, "not_recorded")
	case err != nil:
		p := guard.Problem(err, clock.System{}.Now())
		c.guard.show(w.Header(), p, err)
		refuse(w, p)
		if p.Status >= http.StatusInternalServerError {
			log.Error("a request was refused", "code", p.Code, "instance", p.Instance, "error", err)
		}
	case ran.Begun.State == counterfoil.Replay:
		replay(w, &ran.Receipt)
	case !ran.Recorded:
		log.Error("an answer could not be recorded: its outcome will count as unknown", "operation", ran.Begun.ID, "error", ran.RecordError)
		c.answer.give(w, "not_recorded")
	default:
		c.uncaptured(ran)
		c.answer.give(w, string(ran.Begun.State))
	}
}

// uncaptured tells an operator what was not charged.
func (c *call) uncaptured(ran *counterfoil.Ran) {
	if over := ran.Completed.Uncaptured; len(over) > 0 {
		c.guard.counts.uncaptured.Add(1)
		c.guard.options.Log.Error("an answer cost more than was held for it, and its budgets do not have the rest", "operation", ran.Begun.ID, "uncaptured", over)
	}
	if ran.Completed.Unsettled {
		c.guard.options.Log.Error("an answer was recorded although its hold could not be settled, which stays", "operation", ran.Begun.ID)
	}
}
