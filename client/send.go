package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/state"
)

// Request is one request of the HTTP interface, for routes that have no method here.
type Request struct {
	Method string
	Path   string     // below the server's URL, percent-encoded
	Query  url.Values // nil for none
	Body   any        // written as JSON; nil for none
	// Again says that sending it twice does no more than sending it once, since it only reads or carries a token, key or
	// request id.
	Again bool
}

// Do sends a request and reads the answer into answer, a pointer, or nil to leave it unread. It sends again what the
// package comment says may be. Errors are as of all other methods.
func (c *Caller) Do(ctx context.Context, r Request, answer any) error {
	return c.do(ctx, r, aboutAnything, answer)
}

// do is Do for a request about something whose errors have names.
func (c *Caller) do(ctx context.Context, r Request, what about, answer any) error {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = json.Marshal(r.Body); err != nil {
			// The encoder's own message may repeat a value.
			return fmt.Errorf("%w: a parameter cannot be written as JSON in UTF-8", what.invalid())
		}
	}
	s := &sending{Caller: c, Request: r, body: body, what: what, started: c.client.clock.Boot()}
	return s.run(ctx, answer)
}

// sending is one request with what became of it so far.
type sending struct {
	*Caller
	Request
	body    []byte
	what    about
	started time.Duration // on the boot clock
	sends   int
	lost    bool // an earlier send may have had its effect, and its answer is not known
}

// attempt is what one send came to. If neither is set it has succeeded.
type attempt struct {
	problem *api.Problem // the server's refusal
	failed  error        // no answer of a server
	sent    bool         // with failed: the server may have the request
}

func (s *sending) run(ctx context.Context, answer any) error {
	for {
		s.sends++
		a := s.send(ctx, answer)
		if a.problem == nil && a.failed == nil {
			return nil
		}
		doubtful := a.doubtful()
		wait, again := s.mayRepeat(a, doubtful)
		s.lost = s.lost || doubtful
		if !again || !s.pause(ctx, wait) {
			return s.conclude(ctx, a)
		}
	}
}

// doubtful reports whether the request may have had its effect.
func (a *attempt) doubtful() bool {
	if a.problem == nil {
		return a.sent
	}
	_, known := a.problem.Code.Info()
	return a.problem.Code == api.CommitUnknown || a.problem.Code == api.Internal || !known && a.problem.Status >= 500
}

// transient are the refusals that pass by themselves and soon, after which nothing was done.
var transient = map[api.Code]bool{
	api.StoreUnavailable: true, api.Overloaded: true, api.Draining: true, api.RequestTimeout: true, api.Latched: true,
}

// mayRepeat reports whether the request may be sent again, and after which wait at least.
func (s *sending) mayRepeat(a attempt, doubtful bool) (time.Duration, bool) {
	if s.client.retryFor < 0 || s.sends >= maxSends {
		return 0, false
	}
	switch {
	case doubtful && !s.Again:
		return 0, false
	case a.problem == nil:
		return 0, true
	case a.problem.Code == api.CommitUnknown || transient[a.problem.Code]:
		return a.problem.RetryAfter, true
	}
	return 0, false
}

// pause waits before the next send. It reports false if that would take longer than the request may, or ctx ends.
func (s *sending) pause(ctx context.Context, atLeast time.Duration) bool {
	wait := max(atLeast, s.backoff())
	if s.client.clock.Boot()-s.started+wait > s.client.retryFor {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// backoff doubles with every send, with up to half of it left to chance, so that many clients do not come back at once.
func (s *sending) backoff() time.Duration {
	wait := min(50*time.Millisecond<<(s.sends-1), maxPause)
	var chance [1]byte
	if err := s.client.entropy.Fill(chance[:]); err != nil {
		return wait
	}
	return wait - wait/2*time.Duration(chance[0])/256
}

// conclude gives the error of a request that is not sent again.
func (s *sending) conclude(ctx context.Context, a attempt) error {
	reads := s.Method == http.MethodGet
	if a.problem != nil {
		e := &Error{Problem: *a.problem, means: s.what.meaning(a.problem, s.client.clock.Now())}
		switch {
		case reads && a.doubtful():
			e.means = state.ErrUnavailable
		case s.lost && !a.doubtful() && !settles[a.problem.Code]:
			return fmt.Errorf("%w: the answer to an earlier send was lost, and the request sent again was refused: %s", s.what.unknown(), a.problem.Code)
		}
		return e
	}
	cause := bare(a.failed)
	if err := ctx.Err(); err != nil {
		cause = err
	}
	if s.lost && !reads {
		return fmt.Errorf("%w: no answer came: %w", s.what.unknown(), cause)
	}
	return fmt.Errorf("%w: %w", s.what.unavailable(), cause)
}

// bare takes from an error the URL, which names ids.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// send sends the request once.
func (s *sending) send(ctx context.Context, answer any) attempt {
	if err := ctx.Err(); err != nil {
		return attempt{failed: err}
	}
	ctx, cancel := context.WithTimeout(ctx, s.client.timeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := s.request(ctx)
	if err != nil {
		return attempt{failed: err}
	}
	res, err := s.client.http.Do(req)
	if err != nil {
		return attempt{failed: err, sent: connected.Load()}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, MaxAnswer+1))
	if err == nil && len(body) > MaxAnswer {
		err = fmt.Errorf("the answer has more than %d bytes", MaxAnswer)
	}
	if err != nil {
		return attempt{failed: err, sent: true}
	}
	return read(res, body, answer)
}

func (s *sending) request(ctx context.Context) (*http.Request, error) {
	target := s.client.base.String() + s.Path
	if len(s.Query) > 0 {
		target += "?" + s.Query.Encode()
	}
	var body io.Reader = http.NoBody
	if s.body != nil {
		body = bytes.NewReader(s.body)
	}
	req, err := http.NewRequestWithContext(ctx, s.Method, target, body)
	if err != nil {
		return nil, errors.New("the request cannot be written")
	}
	req.Header.Set("User-Agent", s.client.userAgent)
	req.Header.Set("Accept", "application/json, "+api.ProblemType)
	if s.client.bearer {
		req.Header.Set("Authorization", "Bearer "+s.client.token.Reveal())
	}
	if s.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.scope != "" {
		req.Header.Set("Counterfoil-Scope", s.scope)
	}
	if s.owner != "" {
		req.Header.Set("Counterfoil-Owner", s.owner)
	}
	return req, nil
}

// read tells a server's answer from whatever else may stand between: what does not come from a Counterfoil server is no
// answer, and leaves open what one has done.
func read(res *http.Response, body []byte, answer any) attempt {
	stranger := attempt{failed: fmt.Errorf("%w: status %d", errStranger, res.StatusCode), sent: true}
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		return stranger
	}
	if res.StatusCode >= 400 {
		p := new(api.Problem)
		if media != api.ProblemType || json.Unmarshal(body, p) != nil || p.Code == "" || p.Status != res.StatusCode {
			return stranger
		}
		if seconds, err := strconv.ParseInt(res.Header.Get("Retry-After"), 10, 32); err == nil && seconds > 0 {
			p.RetryAfter = time.Duration(seconds) * time.Second
		}
		return attempt{problem: p}
	}
	if res.StatusCode < 200 || res.StatusCode > 299 || media != "application/json" {
		return stranger
	}
	if answer == nil {
		return attempt{}
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return attempt{failed: errStranger, sent: true}
	}
	return attempt{}
}

var errStranger = errors.New("what answered is not a Counterfoil server, or one of another version")

// RetryAfter tells how long to wait before the same request may have another answer; 0 if waiting does not help or nobody
// knows.
func RetryAfter(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) && e.Problem.Retryable {
		return e.Problem.RetryAfter
	}
	return 0
}

// token draws a token, if none is given.
func (c *Caller) token(given state.Token) (state.Token, error) {
	if given != (state.Token{}) {
		return given, nil
	}
	if err := c.client.entropy.Fill(given[:]); err != nil {
		return state.Token{}, fmt.Errorf("%w: %w", state.ErrUnavailable, err)
	}
	return given, nil
}

// strange says that a server answered something that cannot be the answer to what was asked.
func strange(what about) error {
	return fmt.Errorf("%w: %w", what.unknown(), errStranger)
}
