// Package callertest is what every counterfoil.Caller must do, as one suite: the library and the HTTP client give the same
// results and the same errors.
package callertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
)

// Place is where callers work: a fresh store, and what a test must do to it besides.
type Place interface {
	// As gives the caller of an owner, who may do everything that an owner may.
	As(owner string) counterfoil.Caller
	// Operator gives a caller that resolves the operations of that owner under its own name, "olga".
	Operator(owner string) counterfoil.Caller
	// Define defines a budget in cents without a window.
	Define(name string, limit uint64, parent string)
	// Used tells what of a budget is spent, and what is held.
	Used(name string) (spent, held uint64)
	// CloseBudgets removes a budget and all below it.
	CloseBudgets(prefix string)
	// Quarantine puts the scope into quarantine.
	Quarantine()
	// Advance lets time pass.
	Advance(d time.Duration)
}

// Run runs the suite. Each of its tests gets a place of its own.
func Run(t *testing.T, place func(t *testing.T) Place) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := place(t)
			p.Define("acme", 100, "")
			p.Define("acme/search", 60, "acme")
			c.test(&desk{Place: p, ann: p.As("ann"), t: t})
		})
	}
}

var cases = []struct {
	name string
	test func(d *desk)
}{
	{"a whole call is held, fenced, recorded and captured", wholeCall},
	{"a receipt is replayed byte for byte", replaysBytes},
	{"a begin sent again with its token is the same grant", sameGrant},
	{"a live operation answers before a bad permit", answersAlone},
	{"each refusal of a begin is told by its error", refusals},
	{"each refusal of a permit is told by its error", permitRefusals},
	{"what does not fit is told with its figures", exceeded},
	{"a complete sent again is the same answer", sameComplete},
	{"a capture above the hold that does not fit is cut", uncaptured},
	{"an abort gives everything back", aborts},
	{"a lease is renewed while it is alive", renews},
	{"what is unknown is resolved", resolves},
	{"a permit is consumed once", consumes},
	{"a hold is voided", voids},
	{"another owner's operation does not exist", owners},
	{"in quarantine nothing new begins", recovering},
	{"run performs once and replays", runs},
}

type desk struct {
	Place
	ann counterfoil.Caller
	t   *testing.T
}

func (d *desk) ctx() context.Context { return d.t.Context() }

func (d *desk) want(what string, got, want error) {
	d.t.Helper()
	if !errors.Is(got, want) {
		d.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func (d *desk) used(what, name string, spent, held uint64) {
	d.t.Helper()
	if s, h := d.Used(name); s != spent || h != held {
		d.t.Fatalf("%s: %s has %d spent and %d held, want %d and %d", what, name, s, h, spent, held)
	}
}

func call(request string) permit.Expected {
	return permit.Expected{
		Subject: "ann", Capability: "pay", Server: "bank", Tool: "transfer", RequestID: request,
		ParameterHash: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
	}
}

func amount(name string, n uint64) []counterfoil.Entry {
	return []counterfoil.Entry{{Budget: name, Amount: n}}
}

func fingerprint(n byte) counterfoil.Fingerprint { return counterfoil.Fingerprint{0: n, 31: 1} }

func (d *desk) authorize(request string, hold []counterfoil.Entry) counterfoil.Authorization {
	d.t.Helper()
	a, err := d.ann.Authorize(d.ctx(), counterfoil.AuthorizeParams{Call: call(request), Hold: hold})
	if err != nil {
		d.t.Fatalf("authorize: %v", err)
	}
	return a
}

func request(key string) counterfoil.BeginParams {
	return counterfoil.BeginParams{Key: key, Fingerprint: fingerprint(1)}
}

func permitted(key string, a counterfoil.Authorization) counterfoil.BeginParams {
	p := request(key)
	p.Permit, p.Expected = a.Permit, call(key)
	return p
}

func (d *desk) execute(p counterfoil.BeginParams) counterfoil.Begun {
	d.t.Helper()
	b, err := d.ann.Begin(d.ctx(), p)
	if err != nil || b.State != counterfoil.Execute || b.ID != operation.ID("ann", p.Key) || b.Key != p.Key || b.Token.IsZero() || b.Fence == 0 {
		d.t.Fatalf("begin: %+v, %v, want execute", b, err)
	}
	return b
}

func (d *desk) refused(what string, p counterfoil.BeginParams, want error) {
	d.t.Helper()
	b, err := d.ann.Begin(d.ctx(), p)
	if !errors.Is(err, want) || b.State != "" {
		d.t.Fatalf("%s: begin answered %+v, %v, want %v", what, b, err, want)
	}
}

func receipt(text string) operation.Receipt {
	return operation.Receipt{Status: 200, Body: []byte(text)}
}

func (d *desk) complete(b counterfoil.Begun, capture *[]counterfoil.Entry) (counterfoil.Completed, error) {
	d.t.Helper()
	return d.ann.Complete(d.ctx(), counterfoil.CompleteParams{ID: b.ID, Token: b.Token, Receipt: receipt("done"), Capture: capture})
}

func wholeCall(d *desk) {
	a := d.authorize("order-1", amount("acme/search", 20))
	again := d.authorize("order-1", amount("acme/search", 20))
	if !again.Repeated || string(again.Permit) != string(a.Permit) || a.HoldID == "" || again.HoldID != a.HoldID || !again.ExpiresAt.Equal(a.ExpiresAt) {
		d.t.Fatalf("authorize again: %+v, want %+v", again, a)
	}
	checked, err := d.ann.Check(d.ctx(), counterfoil.CheckParams{Permit: a.Permit, Expected: call("order-1")})
	if err != nil || checked.HoldID != a.HoldID || !checked.ExpiresAt.Equal(a.ExpiresAt) || checked.NonceID == "" {
		d.t.Fatalf("check: %+v, %v", checked, err)
	}
	b := d.execute(permitted("order-1", a))
	d.Advance(time.Hour)
	d.used("after begin", "acme", 0, 20)
	capture := amount("acme/search", 15)
	done, err := d.complete(b, &capture)
	if err != nil || done.Unsettled || done.Uncaptured != nil || done.ReceiptExpiresAt.IsZero() {
		d.t.Fatalf("complete: %+v, %v", done, err)
	}
	d.used("after complete", "acme/search", 15, 0)
	d.used("after complete", "acme", 15, 0)
	_, err = d.ann.Authorize(d.ctx(), counterfoil.AuthorizeParams{Call: call("order-1"), Hold: amount("acme/search", 20)})
	d.want("authorize of what is settled", err, budget.ErrHoldSettled)
	_, err = d.ann.Authorize(d.ctx(), counterfoil.AuthorizeParams{Call: call("order-1"), Hold: amount("acme/search", 21)})
	d.want("authorize of another amount", err, budget.ErrRequestIDReused)
	op, err := d.ann.Operation(d.ctx(), b.ID)
	if err != nil || op.State != operation.Settled || op.Key != "order-1" || op.Owner != "ann" || string(op.Receipt.Body) != "done" {
		d.t.Fatalf("operation: %+v, %v", op, err)
	}
}

func replaysBytes(d *desk) {
	for key, r := range map[string]operation.Receipt{
		"json":  {Status: 201, ContentType: "application/json", JSON: true, Body: []byte(`{"n":12345678901234567890,"x":1.50}`)},
		"bytes": {Status: 200, ContentType: "application/octet-stream", Body: []byte{0, 1, 2, 255}, Headers: map[string][]string{"Location": {"/a"}, "Link": {"b", "c"}}},
		"none":  {},
	} {
		b := d.execute(request(key))
		if _, err := d.ann.Complete(d.ctx(), counterfoil.CompleteParams{ID: b.ID, Token: b.Token, Receipt: r}); err != nil {
			d.t.Fatalf("complete %s: %v", key, err)
		}
		got, err := d.ann.Begin(d.ctx(), request(key))
		if err != nil || got.State != counterfoil.Replay || got.Receipt == nil {
			d.t.Fatalf("begin %s again: %+v, %v", key, got, err)
		}
		same := got.Receipt.Status == r.Status && got.Receipt.ContentType == r.ContentType && got.Receipt.JSON == r.JSON &&
			string(got.Receipt.Body) == string(r.Body) && len(got.Receipt.Headers) == len(r.Headers)
		for name, values := range r.Headers {
			same = same && len(got.Receipt.Headers[name]) == len(values) && got.Receipt.Headers[name][len(values)-1] == values[len(values)-1]
		}
		if !same {
			d.t.Fatalf("the receipt of %s came back as %+v, want %+v", key, got.Receipt, r)
		}
	}
}

func sameGrant(d *desk) {
	p := permitted("order-1", d.authorize("order-1", amount("acme/search", 20)))
	p.Spend, p.Token, p.Lease = amount("acme", 5), counterfoil.Token{1}, time.Hour
	first := d.execute(p)
	d.Advance(time.Minute)
	again, err := d.ann.Begin(d.ctx(), p)
	if err != nil || !again.Repeated || again.State != counterfoil.Execute || again.Token != p.Token || again.Fence != first.Fence || !again.LeaseUntil.Equal(first.LeaseUntil) {
		d.t.Fatalf("begin again: %+v, %v, want %+v", again, err, first)
	}
	d.used("after both", "acme", 5, 20)
}

func answersAlone(d *desk) {
	b := d.execute(permitted("order-1", d.authorize("order-1", nil)))
	for what, change := range map[string]func(*counterfoil.BeginParams){
		"malformed": func(p *counterfoil.BeginParams) { p.Permit = []byte(`{}`) },
		"unknown":   func(p *counterfoil.BeginParams) { p.Permit, p.Spend = nil, amount("nobody", 1) },
		"too much":  func(p *counterfoil.BeginParams) { p.Permit, p.Spend = nil, amount("acme", 101) },
	} {
		p := permitted("order-1", counterfoil.Authorization{Permit: []byte(`{}`)})
		change(&p)
		d.refused(what, p, operation.ErrInFlight)
	}
	if _, err := d.complete(b, nil); err != nil {
		d.t.Fatal(err)
	}
	got, err := d.ann.Begin(d.ctx(), permitted("order-1", counterfoil.Authorization{Permit: []byte(`{}`)}))
	if err != nil || got.State != counterfoil.Replay {
		d.t.Fatalf("begin: %+v, %v, want replay", got, err)
	}
}

func refusals(d *desk) {
	b := d.execute(request("order-1"))
	_, err := d.ann.Begin(d.ctx(), request("order-1"))
	var busy *operation.InFlightError
	if !errors.As(err, &busy) || busy.RetryAfter <= 0 || busy.RetryAfter > counterfoil.DefaultLease {
		d.t.Fatalf("begin: %v, want in flight with the time to wait", err)
	}
	p := request("order-1")
	p.Fingerprint = fingerprint(2)
	d.refused("another fingerprint", p, operation.ErrMismatch)
	d.Advance(counterfoil.DefaultLease)
	d.refused("after the lease", request("order-1"), operation.ErrOutcomeUnknown)
	if _, err := d.complete(b, nil); err != nil {
		d.t.Fatal(err)
	}
	d.Advance(24 * time.Hour)
	d.refused("after the retention", request("order-1"), operation.ErrKeyExpired)
	d.refused("an empty key", request(""), counterfoil.ErrInvalid)
	p = request("order-2")
	p.HoldID = b.ID
	d.refused("an unknown hold", p, budget.ErrHoldUnknown)
	p = request("order-2")
	p.Spend = amount("nobody", 1)
	d.refused("an unknown budget", p, budget.ErrBudgetUnknown)
	p.Token, p.Spend = counterfoil.Token{1}, nil
	aborted := d.execute(p)
	if _, err := d.ann.Abort(d.ctx(), counterfoil.AbortParams{ID: aborted.ID, Token: aborted.Token, Reason: "never sent"}); err != nil {
		d.t.Fatal(err)
	}
	d.refused("an aborted claim", p, operation.ErrAborted)
}

func permitRefusals(d *desk) {
	a := d.authorize("order-1", amount("acme/search", 20))
	p := permitted("order-1", a)
	p.Expected.Tool = "other"
	_, err := d.ann.Begin(d.ctx(), p)
	var mismatch *permit.BindingMismatchError
	if !errors.Is(err, permit.ErrBindingMismatch) || !errors.As(err, &mismatch) || mismatch.Field != permit.FieldTool {
		d.t.Fatalf("begin: %v, want the tool mismatched", err)
	}
	tampered := []byte(string(a.Permit))
	if tampered[len(tampered)-3] == '0' {
		tampered[len(tampered)-3] = '1'
	} else {
		tampered[len(tampered)-3] = '0'
	}
	d.refused("a tampered signature", permitted("order-1", counterfoil.Authorization{Permit: tampered}), permit.ErrInvalidSignature)
	d.refused("no permit at all", permitted("order-1", counterfoil.Authorization{Permit: []byte(`{}`)}), permit.ErrMalformed)
	d.CloseBudgets("acme/search")
	d.refused("the hold of a closed budget", permitted("order-1", a), budget.ErrHoldSettled)
	b := d.authorize("order-2", nil)
	d.execute(permitted("order-2", b))
	used := permitted("order-3", b)
	used.Expected = call("order-2")
	d.refused("a used permit", used, permit.ErrReplayed)
	late := d.authorize("order-4", nil)
	d.Advance(time.Minute)
	d.refused("an expired permit", permitted("order-4", late), permit.ErrExpired)
}

func exceeded(d *desk) {
	p := request("order-1")
	p.Spend = amount("acme/search", 101)
	_, err := d.ann.Begin(d.ctx(), p)
	var e *budget.ExceededError
	if !errors.Is(err, budget.ErrExceeded) || !errors.As(err, &e) || len(e.Refused) != 2 {
		d.t.Fatalf("begin: %v, want both budgets exceeded", err)
	}
	for _, f := range e.Refused {
		if want := map[string]uint64{"acme": 100, "acme/search": 60}[f.Name]; f.Limit != want || f.Remaining != want || f.Amount != 101 || f.Unit != "cent" {
			d.t.Fatalf("the figures are %+v", f)
		}
	}
	if _, can := e.RetryAt(); can {
		d.t.Fatal("waiting is said to help")
	}
	_, err = d.ann.Hold(d.ctx(), counterfoil.HoldParams{RequestID: "r", Entries: amount("acme", 101), TTL: time.Minute})
	d.want("hold", err, budget.ErrExceeded)
	_, err = d.ann.Authorize(d.ctx(), counterfoil.AuthorizeParams{Call: call("order-1"), Hold: amount("acme", 101)})
	d.want("authorize", err, budget.ErrExceeded)
	d.used("after the refusals", "acme", 0, 0)
}

func sameComplete(d *desk) {
	b := d.execute(request("order-1"))
	first, err := d.complete(b, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	d.Advance(time.Hour)
	again, err := d.complete(b, nil)
	if err != nil || !again.ReceiptExpiresAt.Equal(first.ReceiptExpiresAt) {
		d.t.Fatalf("complete again: %+v, %v, want %+v", again, err, first)
	}
	_, err = d.ann.Complete(d.ctx(), counterfoil.CompleteParams{ID: b.ID, Token: b.Token, Receipt: receipt("other")})
	d.want("another receipt", err, operation.ErrNotPending)
	_, err = d.ann.Complete(d.ctx(), counterfoil.CompleteParams{ID: b.ID, Token: counterfoil.Token{9}, Receipt: receipt("done")})
	d.want("another token", err, operation.ErrNotHolder)
	_, err = d.ann.Complete(d.ctx(), counterfoil.CompleteParams{ID: operation.ID("ann", "never"), Token: b.Token, Receipt: receipt("done")})
	d.want("what never was", err, operation.ErrNotFound)
}

func uncaptured(d *desk) {
	b := d.execute(permitted("order-1", d.authorize("order-1", amount("acme/search", 20))))
	capture := amount("acme/search", 61)
	for range 2 {
		done, err := d.complete(b, &capture)
		if err != nil || len(done.Uncaptured) != 1 || done.Uncaptured[0] != amount("acme/search", 41)[0] {
			d.t.Fatalf("complete: %+v, %v, want 41 uncaptured", done, err)
		}
	}
	d.used("after complete", "acme", 20, 0)
	b = d.execute(permitted("order-2", d.authorize("order-2", amount("acme/search", 20))))
	wrong := amount("acme", 1)
	_, err := d.complete(b, &wrong)
	d.want("a budget that is not in the hold", err, counterfoil.ErrInvalid)
	none := []counterfoil.Entry{}
	if _, err := d.complete(b, &none); err != nil {
		d.t.Fatal(err)
	}
	d.used("after an empty capture", "acme", 20, 0)
}

func aborts(d *desk) {
	p := permitted("order-1", d.authorize("order-1", amount("acme/search", 20)))
	p.Spend = amount("acme", 5)
	b := d.execute(p)
	d.used("after begin", "acme", 5, 20)
	for range 2 {
		if done, err := d.ann.Abort(d.ctx(), counterfoil.AbortParams{ID: b.ID, Token: b.Token, Reason: "never sent"}); err != nil || done.Unsettled {
			d.t.Fatalf("abort: %+v, %v", done, err)
		}
		d.used("after abort", "acme", 0, 0)
	}
	d.refused("the used permit", p, permit.ErrReplayed)
	d.execute(request("order-1"))
}

func renews(d *desk) {
	b := d.execute(request("order-1"))
	renew := func(token counterfoil.Token) (counterfoil.Renewed, error) {
		return d.ann.Renew(d.ctx(), counterfoil.RenewParams{ID: b.ID, Token: token, Lease: time.Minute})
	}
	d.Advance(20 * time.Second)
	if got, err := renew(b.Token); err != nil || got.LeaseUntil.Sub(b.LeaseUntil) != 50*time.Second {
		d.t.Fatalf("renew: %+v, %v", got, err)
	}
	_, err := renew(counterfoil.Token{9})
	d.want("another token", err, operation.ErrNotHolder)
	d.Advance(time.Minute)
	_, err = renew(b.Token)
	d.want("after the lease", err, operation.ErrOutcomeUnknown)
}

func resolves(d *desk) {
	for _, outcome := range []operation.Outcome{operation.Happened, operation.DidNotHappen} {
		p := request(string(outcome))
		p.Spend = amount("acme", 5)
		b := d.execute(p)
		olga := d.Operator("ann")
		resolution := counterfoil.ResolveParams{ID: b.ID, Outcome: outcome, Note: "asked the ledger"}
		if outcome == operation.Happened {
			resolution.Receipt = receipt("by hand")
		}
		_, err := olga.Resolve(d.ctx(), resolution)
		d.want("while the lease is alive", err, operation.ErrInFlight)
		d.Advance(counterfoil.DefaultLease)
		for range 2 {
			got, err := olga.Resolve(d.ctx(), resolution)
			if want := map[operation.Outcome]operation.State{operation.Happened: operation.Settled, operation.DidNotHappen: operation.Aborted}[outcome]; err != nil || got.State != want {
				d.t.Fatalf("resolve: %+v, %v", got, err)
			}
		}
		resolution.Outcome, resolution.Receipt = operation.Happened, operation.Receipt{}
		if outcome == operation.Happened {
			resolution.Outcome = operation.DidNotHappen
		}
		_, err = olga.Resolve(d.ctx(), resolution)
		d.want("another outcome", err, operation.ErrNotPending)
		_, err = d.complete(b, nil)
		d.want("a late complete", err, operation.ErrNotHolder)
		op, err := d.ann.Operation(d.ctx(), b.ID)
		if err != nil || op.Resolved == nil || op.Resolved.Outcome != outcome || op.Resolved.By != "olga" || op.Resolved.Note != "asked the ledger" {
			d.t.Fatalf("operation: %+v, %v", op, err)
		}
	}
	d.used("one happened, one did not", "acme", 5, 0)
}

func consumes(d *desk) {
	a := d.authorize("order-1", amount("acme", 20))
	p := counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("order-1"), Token: counterfoil.Token{1}}
	for n := range 2 {
		got, err := d.ann.Consume(d.ctx(), p)
		if err != nil || got.Repeated != (n == 1) || got.HoldID != a.HoldID || got.Token != p.Token || got.NonceID == "" {
			d.t.Fatalf("consume: %+v, %v", got, err)
		}
	}
	p.Token = counterfoil.Token{}
	_, err := d.ann.Consume(d.ctx(), p)
	d.want("another token", err, permit.ErrReplayed)
	_, err = d.ann.Check(d.ctx(), counterfoil.CheckParams{Permit: a.Permit, Expected: call("order-1")})
	d.want("check", err, permit.ErrReplayed)
	b := d.authorize("order-2", nil)
	got, err := d.ann.Consume(d.ctx(), counterfoil.ConsumeParams{Permit: b.Permit, Expected: call("order-2")})
	if err != nil || got.Token.IsZero() || got.HoldID != "" {
		d.t.Fatalf("consume: %+v, %v", got, err)
	}
}

func voids(d *desk) {
	p := counterfoil.HoldParams{RequestID: "r", Entries: amount("acme/search", 20), TTL: time.Minute}
	h, err := d.ann.Hold(d.ctx(), p)
	if err != nil || h.ID == "" || h.ExpiresAt.IsZero() {
		d.t.Fatalf("hold: %+v, %v", h, err)
	}
	if again, err := d.ann.Hold(d.ctx(), p); err != nil || !again.Repeated || again.ID != h.ID {
		d.t.Fatalf("hold again: %+v, %v", again, err)
	}
	d.used("after both", "acme", 0, 20)
	for range 2 {
		if _, err := d.ann.Void(d.ctx(), counterfoil.VoidParams{ID: h.ID}); err != nil {
			d.t.Fatalf("void: %v", err)
		}
	}
	d.used("after void", "acme", 0, 0)
	begin := request("order-1")
	begin.HoldID = h.ID
	d.refused("begin with a voided hold", begin, budget.ErrHoldSettled)
	_, err = d.As("bob").Void(d.ctx(), counterfoil.VoidParams{ID: h.ID})
	d.want("void by another owner", err, budget.ErrHoldUnknown)
}

func owners(d *desk) {
	b := d.execute(request("order-1"))
	bob := d.As("bob")
	_, err := bob.Complete(d.ctx(), counterfoil.CompleteParams{ID: b.ID, Token: b.Token, Receipt: receipt("x")})
	d.want("complete", err, operation.ErrNotFound)
	_, err = bob.Abort(d.ctx(), counterfoil.AbortParams{ID: b.ID, Token: b.Token, Reason: "r"})
	d.want("abort", err, operation.ErrNotFound)
	_, err = bob.Renew(d.ctx(), counterfoil.RenewParams{ID: b.ID, Token: b.Token, Lease: time.Minute})
	d.want("renew", err, operation.ErrNotFound)
	_, err = bob.Operation(d.ctx(), b.ID)
	d.want("operation", err, operation.ErrNotFound)
	got, err := bob.Begin(d.ctx(), request("order-1"))
	if err != nil || got.State != counterfoil.Execute || got.ID == b.ID {
		d.t.Fatalf("bob's own: %+v, %v", got, err)
	}
}

func recovering(d *desk) {
	b := d.execute(permitted("order-1", d.authorize("order-1", amount("acme", 20))))
	d.Quarantine()
	d.refused("begin", request("order-2"), counterfoil.ErrRecovering)
	_, err := d.ann.Hold(d.ctx(), counterfoil.HoldParams{RequestID: "r", Entries: amount("acme", 1), TTL: time.Minute})
	d.want("hold", err, counterfoil.ErrRecovering)
	if _, err := d.complete(b, nil); err != nil {
		d.t.Fatalf("complete: %v", err)
	}
	d.used("after complete", "acme", 20, 0)
}

func runs(d *desk) {
	effects := 0
	for range 2 {
		ran, err := counterfoil.Run(d.ctx(), d.ann, request("order-1"), func(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
			effects++
			return counterfoil.Result{Receipt: receipt("done")}, nil
		})
		if err != nil || !ran.Recorded || string(ran.Receipt.Body) != "done" {
			d.t.Fatalf("run: %+v, %v", ran, err)
		}
	}
	if effects != 1 {
		d.t.Fatalf("the effect ran %d times", effects)
	}
}
