package callertest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

// clauses are what every caller must do.
var clauses = []struct {
	name string
	test func(*World)
}{
	{"WholeGuardedCall", wholeCall},
	{"RunPerformsAnEffectOnce", runOnce},
	{"ReplayIsByteForByte", replayBytes},
	{"ReplayKeepsNumbersAsSpelled", replayNumbers},
	{"BeginSentAgainWithItsTokenIsTheSameGrant", beginAgain},
	{"KeyInFlightIsRefusedWithTheTimeToWait", inFlight},
	{"KeyOfAnotherRequestIsRefused", keyReused},
	{"OutcomeOfALostHolderIsUnknownAndNeverRunAgain", outcomeUnknown},
	{"ReceiptPastItsRetentionIsRefused", keyExpired},
	{"ReceiptTooLargeIsToldByDigestAndLength", notRetained},
	{"RenewProlongsALivingLeaseOnly", renew},
	{"AbortFreesTheKeyAndTheMoney", abort},
	{"CompleteByAnotherTokenIsRefused", notHolder},
	{"CompleteAgainIsTheSameAndOtherwiseRefused", completeAgain},
	{"ResolveHappenedIsReplayed", resolveHappened},
	{"ResolveDidNotHappenFreesTheKey", resolveDidNot},
	{"ResolveOfALivingLeaseIsRefused", resolveInFlight},
	{"OperationOfAnotherOwnerIsNotFound", otherOwner},
	{"OneKeyOfTwoOwnersIsTwoOperations", twoOwners},
	{"PermitIsUsedOnce", permitOnce},
	{"PermitConsumedAgainWithItsTokenIsTheSameGrant", consumeAgain},
	{"PermitOfAnotherCallIsRefusedByTheField", bindings},
	{"PermitThatCannotBeReadIsRefused", badPermits},
	{"PermitThatExpiredIsRefused", permitExpired},
	{"PermitOfAVoidHoldIsRefused", permitOfVoidHold},
	{"CheckUsesNothingUp", check},
	{"LiveOperationAnswersBeforeItsPermitIsRead", liveFirst},
	{"AuthorizedAgainIsTheSamePermit", authorizeAgain},
	{"HoldIsVoidedOnceFencedNever", holds},
	{"HoldRequestIDOfOtherContentIsRefused", holdReused},
	{"BudgetRefusalNamesEveryFigure", exceeded},
	{"UnknownBudgetIsRefused", unknownBudget},
	{"CaptureAboveTheHoldIsToldUncaptured", uncaptured},
	{"InvalidParametersAreRefused", invalid},
	{"CallerWhoHasLeftGetsNoYes", cancelled},
	{"OfManyCallersOneExecutes", race},
	{"ApprovedCallBeginsOnceWithItsPermit", approvedCall},
	{"ApprovalIsOfOneCallOfOneOwner", approvalOfOthers},
	{"DeniedCallIsToldSo", approvalDenied},
	{"ApprovedCallThatIsRevokedIsRefused", approvalRevoked},
	{"ApprovalThatIsOverIsAskedForAnew", approvalOver},
	{"ApprovalOfWhatIsNeverAcceptedIsRefused", approvalInvalid},
}

func wholeCall(w *World) {
	a := w.authorize("r1", amounts("acme/search", 10))
	if a.HoldID == "" || len(a.Permit) == 0 || a.ExpiresAt.Before(w.Clock.Now()) || len(a.Budgets) != 2 {
		w.T.Fatalf("authorize: %+v", a)
	}
	w.standing("held", "acme", 0, 10)
	p := request("order")
	p.Permit, p.Expected, p.Spend = a.Permit, call("r1"), amounts("acme", 5)
	p.Metadata = []byte(`{"why":"test"}`)
	b := w.execute(w.Ann, p)
	if b.HoldID != a.HoldID || b.Key != "order" || !b.LeaseUntil.After(w.Clock.Now()) || b.CreatedAt.IsZero() {
		w.T.Fatalf("begin: %+v", b)
	}
	if at := slices.IndexFunc(b.Budgets, func(f counterfoil.Figures) bool { return f.Name == "acme" }); at < 0 || b.Budgets[at].Spent != 5 || b.Budgets[at].Limit != 100 {
		w.T.Fatalf("figures after the spend: %+v", b.Budgets)
	}
	o, err := w.Ann.Operation(w.ctx(), b.ID)
	w.must(err)
	if o.State != operation.InFlight || o.Owner != "ann" || o.Key != "order" || o.HoldID != a.HoldID || string(o.Metadata) != `{"why":"test"}` {
		w.T.Fatalf("operation in flight: %+v", o)
	}
	done := w.complete(w.Ann, b, text("paid"), new(amounts("acme/search", 7)))
	if !done.ReceiptExpiresAt.After(w.Clock.Now()) || len(done.Uncaptured) != 0 || done.Unsettled {
		w.T.Fatalf("complete: %+v", done)
	}
	w.standing("captured", "acme", 12, 0)
	again, err := w.Ann.Begin(w.ctx(), p)
	w.must(err)
	if again.State != counterfoil.Replay || again.Receipt == nil || string(again.Receipt.Body) != "paid" || again.CompletedAt.IsZero() || again.ID != b.ID {
		w.T.Fatalf("replay: %+v", again)
	}
}

func runOnce(w *World) {
	ran := 0
	effect := func(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
		ran++
		return counterfoil.Result{Receipt: text("done")}, nil
	}
	for i := range 3 {
		r, err := counterfoil.Run(w.ctx(), w.Ann, request("k"), effect)
		w.must(err)
		if !r.Recorded || string(r.Receipt.Body) != "done" || ran != 1 {
			w.T.Fatalf("run %d: %+v after %d effects", i, r, ran)
		}
	}
	_, err := counterfoil.Run(w.ctx(), w.Ann, request("not"), func(context.Context, counterfoil.Begun) (counterfoil.Result, error) {
		return counterfoil.Result{}, counterfoil.NotPerformed(errors.New("no route"))
	})
	if err == nil || !strings.Contains(err.Error(), "no route") {
		w.T.Fatalf("an effect that was not performed: %v", err)
	}
	w.execute(w.Ann, request("not"))
}

func replayBytes(w *World) {
	want := operation.Receipt{
		Status: 418, ContentType: "application/octet-stream", Body: []byte{0, 1, 0xff, '\n', 0x80, 'x'},
		Headers: map[string][]string{"Location": {"/a"}, "Set-Cookie": {"a=1", "b=2"}},
	}
	w.complete(w.Ann, w.execute(w.Ann, request("k")), want, nil)
	b, err := w.Ann.Begin(w.ctx(), request("k"))
	w.must(err)
	got := b.Receipt
	if got.Status != want.Status || got.ContentType != want.ContentType || !bytes.Equal(got.Body, want.Body) || got.JSON ||
		!maps.EqualFunc(got.Headers, want.Headers, slices.Equal[[]string]) {
		w.T.Fatalf("replay: %+v; want %+v", got, want)
	}
	w.complete(w.Ann, w.execute(w.Ann, request("empty")), operation.Receipt{}, nil)
	if b, err = w.Ann.Begin(w.ctx(), request("empty")); err != nil || b.Receipt == nil || len(b.Receipt.Body) != 0 || b.Receipt.JSON {
		w.T.Fatalf("an empty receipt: %+v, %v", b.Receipt, err)
	}
}

func replayNumbers(w *World) {
	const body = `{"big":12345678901234567890,"cents":1.50,"exp":1E2,"list":[0.10,-0]}`
	w.complete(w.Ann, w.execute(w.Ann, request("k")), operation.Receipt{Body: []byte(body), JSON: true}, nil)
	b, err := w.Ann.Begin(w.ctx(), request("k"))
	w.must(err)
	if !b.Receipt.JSON || string(b.Receipt.Body) != body {
		w.T.Fatalf("replay: JSON %v %s; want %s", b.Receipt.JSON, b.Receipt.Body, body)
	}
}

func beginAgain(w *World) {
	p := request("k")
	p.Token = counterfoil.Token{1, 2, 3}
	p.Spend = amounts("acme", 5)
	first := w.execute(w.Ann, p)
	if first.Repeated || first.Token != p.Token {
		w.T.Fatalf("first: %+v", first)
	}
	again := w.execute(w.Ann, p)
	if !again.Repeated || again.Token != p.Token || again.Fence != first.Fence || again.ID != first.ID {
		w.T.Fatalf("again: %+v; first: %+v", again, first)
	}
	w.standing("spent once", "acme", 5, 0)
}

func inFlight(w *World) {
	w.execute(w.Ann, request("k"))
	_, err := w.Ann.Begin(w.ctx(), request("k"))
	w.want("in flight", err, operation.ErrInFlight)
	var e *operation.InFlightError
	if !errors.As(err, &e) || e.RetryAfter <= 0 || e.RetryAfter > counterfoil.DefaultLease {
		w.T.Fatalf("no time to wait in %v", err)
	}
}

func keyReused(w *World) {
	w.execute(w.Ann, request("k"))
	p := request("k")
	p.Fingerprint = fingerprint(2)
	w.refused("another fingerprint", w.Ann, p, operation.ErrMismatch)
}

func outcomeUnknown(w *World) {
	b := w.execute(w.Ann, request("k"))
	w.Clock.Advance(counterfoil.DefaultLease + time.Second)
	w.refused("the lease is over", w.Ann, request("k"), operation.ErrOutcomeUnknown)
	w.Clock.Advance(60 * 24 * time.Hour)
	w.refused("much later", w.Ann, request("k"), operation.ErrOutcomeUnknown)
	w.complete(w.Ann, b, text("late, and true"), nil)
}

func keyExpired(w *World) {
	w.complete(w.Ann, w.execute(w.Ann, request("k")), text("x"), nil)
	w.Clock.Advance(operation.DefaultRetention + time.Hour)
	w.refused("past its retention", w.Ann, request("k"), operation.ErrKeyExpired)
}

func notRetained(w *World) {
	w.complete(w.Ann, w.execute(w.Ann, request("k")), text(strings.Repeat("x", 2*MaxReceipt)), nil)
	_, err := w.Ann.Begin(w.ctx(), request("k"))
	w.want("too large", err, operation.ErrReceiptNotRetained)
	var e *operation.NotRetainedError
	if !errors.As(err, &e) || e.Length != 2*MaxReceipt || e.Digest == [32]byte{} {
		w.T.Fatalf("no digest and length in %v", err)
	}
	o, err := w.Ann.Operation(w.ctx(), operation.ID("ann", "k"))
	w.must(err)
	if o.NotRetained == nil || *o.NotRetained != e.NotRetained || o.Receipt != nil {
		w.T.Fatalf("operation: %+v", o)
	}
}

func renew(w *World) {
	b := w.execute(w.Ann, request("k"))
	w.Clock.Advance(20 * time.Second)
	r, err := w.Ann.Renew(w.ctx(), counterfoil.RenewParams{ID: b.ID, Token: b.Token, Lease: time.Minute})
	w.must(err)
	if want := w.Clock.Now().Add(time.Minute); r.LeaseUntil.Sub(want).Abs() > time.Second {
		w.T.Fatalf("lease until %v; want %v", r.LeaseUntil, want)
	}
	w.Clock.Advance(50 * time.Second)
	w.refused("still alive", w.Ann, request("k"), operation.ErrInFlight)
	_, err = w.Ann.Renew(w.ctx(), counterfoil.RenewParams{ID: b.ID, Token: counterfoil.Token{9}})
	w.want("another token", err, operation.ErrNotHolder)
	w.Clock.Advance(time.Minute)
	_, err = w.Ann.Renew(w.ctx(), counterfoil.RenewParams{ID: b.ID, Token: b.Token})
	w.want("a lease that is over", err, operation.ErrOutcomeUnknown)
}

func abort(w *World) {
	p := request("k")
	p.Spend, p.Token = amounts("acme/search", 5), counterfoil.Token{7}
	b := w.execute(w.Ann, p)
	_, err := w.Ann.Abort(w.ctx(), counterfoil.AbortParams{ID: b.ID, Token: b.Token, Reason: "not sent"})
	w.must(err)
	w.standing("given back", "acme", 0, 0)
	w.refused("the claim that was aborted", w.Ann, p, operation.ErrAborted)
	o, err := w.Ann.Operation(w.ctx(), b.ID)
	w.must(err)
	if o.State != operation.Aborted {
		w.T.Fatalf("operation: %+v", o)
	}
	w.execute(w.Ann, request("k"))
}

func notHolder(w *World) {
	b := w.execute(w.Ann, request("k"))
	_, err := w.Ann.Complete(w.ctx(), counterfoil.CompleteParams{ID: b.ID, Token: counterfoil.Token{9}, Receipt: text("x")})
	w.want("complete", err, operation.ErrNotHolder)
	_, err = w.Ann.Abort(w.ctx(), counterfoil.AbortParams{ID: b.ID, Token: counterfoil.Token{9}, Reason: "x"})
	w.want("abort", err, operation.ErrNotHolder)
}

func completeAgain(w *World) {
	b := w.execute(w.Ann, request("k"))
	first := w.complete(w.Ann, b, text("x"), nil)
	if again := w.complete(w.Ann, b, text("x"), nil); !again.ReceiptExpiresAt.Equal(first.ReceiptExpiresAt) {
		w.T.Fatalf("again: %+v; first: %+v", again, first)
	}
	_, err := w.Ann.Complete(w.ctx(), counterfoil.CompleteParams{ID: b.ID, Token: b.Token, Receipt: text("y")})
	w.want("another receipt", err, operation.ErrNotPending)
}

func (w *World) lost(key string) counterfoil.Begun {
	w.T.Helper()
	p := request(key)
	p.Spend = amounts("acme", 5)
	b := w.execute(w.Ann, p)
	w.Clock.Advance(counterfoil.DefaultLease + time.Second)
	return b
}

func resolveHappened(w *World) {
	b := w.lost("k")
	r, err := w.Olga.Resolve(w.ctx(), counterfoil.ResolveParams{ID: b.ID, Outcome: operation.Happened, Receipt: text("found"), Note: "the ledger has it"})
	w.must(err)
	if r.State != operation.Settled {
		w.T.Fatalf("resolve: %+v", r)
	}
	got, err := w.Ann.Begin(w.ctx(), request("k"))
	w.must(err)
	if got.State != counterfoil.Replay || string(got.Receipt.Body) != "found" {
		w.T.Fatalf("replay: %+v", got)
	}
	o, err := w.Ann.Operation(w.ctx(), b.ID)
	w.must(err)
	if o.Resolved == nil || o.Resolved.By != "olga" || o.Resolved.Outcome != operation.Happened || o.Resolved.Note != "the ledger has it" || o.Resolved.At.IsZero() {
		w.T.Fatalf("resolved: %+v", o.Resolved)
	}
	_, err = w.Olga.Resolve(w.ctx(), counterfoil.ResolveParams{ID: b.ID, Outcome: operation.DidNotHappen, Note: "no"})
	w.want("otherwise", err, operation.ErrNotPending)
}

func resolveDidNot(w *World) {
	b := w.lost("k")
	r, err := w.Olga.Resolve(w.ctx(), counterfoil.ResolveParams{ID: b.ID, Outcome: operation.DidNotHappen, Note: "the ledger lacks it"})
	w.must(err)
	if r.State != operation.Aborted {
		w.T.Fatalf("resolve: %+v", r)
	}
	w.standing("given back", "acme", 0, 0)
	_, err = w.Ann.Complete(w.ctx(), counterfoil.CompleteParams{ID: b.ID, Token: b.Token, Receipt: text("late")})
	w.want("the old holder", err, operation.ErrNotHolder)
	w.execute(w.Ann, request("k"))
}

func resolveInFlight(w *World) {
	b := w.execute(w.Ann, request("k"))
	_, err := w.Olga.Resolve(w.ctx(), counterfoil.ResolveParams{ID: b.ID, Outcome: operation.DidNotHappen, Note: "x"})
	w.want("its lease lives", err, operation.ErrInFlight)
}

func otherOwner(w *World) {
	b := w.execute(w.Ann, request("k"))
	_, err := w.Bob.Operation(w.ctx(), b.ID)
	w.want("read", err, operation.ErrNotFound)
	_, err = w.Bob.Complete(w.ctx(), counterfoil.CompleteParams{ID: b.ID, Token: b.Token, Receipt: text("x")})
	w.want("complete", err, operation.ErrNotFound)
	_, err = w.Bob.Renew(w.ctx(), counterfoil.RenewParams{ID: b.ID, Token: b.Token})
	w.want("renew", err, operation.ErrNotFound)
	_, err = w.Bob.Abort(w.ctx(), counterfoil.AbortParams{ID: b.ID, Token: b.Token, Reason: "x"})
	w.want("abort", err, operation.ErrNotFound)
	if _, err = w.Olga.Operation(w.ctx(), b.ID); err != nil {
		w.T.Fatalf("an observer: %v", err)
	}
}

func twoOwners(w *World) {
	a, b := w.execute(w.Ann, request("k")), w.execute(w.Bob, request("k"))
	if a.ID == b.ID || a.ID != operation.ID("ann", "k") || b.ID != operation.ID("bob", "k") {
		w.T.Fatalf("ids: %s and %s", a.ID, b.ID)
	}
}

func permitOnce(w *World) {
	a := w.authorize("r1", nil)
	got, err := w.Ann.Consume(w.ctx(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("r1")})
	w.must(err)
	if got.NonceID == "" || got.Token == (counterfoil.Token{}) || got.Repeated {
		w.T.Fatalf("consume: %+v", got)
	}
	_, err = w.Bob.Consume(w.ctx(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("r1")})
	w.want("again", err, permit.ErrReplayed)
	p := request("k")
	p.Permit, p.Expected = a.Permit, call("r1")
	w.refused("in a begin", w.Ann, p, permit.ErrReplayed)
}

func consumeAgain(w *World) {
	a := w.authorize("r1", nil)
	p := counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("r1"), Token: counterfoil.Token{4, 2}}
	first, err := w.Ann.Consume(w.ctx(), p)
	w.must(err)
	again, err := w.Ann.Consume(w.ctx(), p)
	w.must(err)
	if first.Repeated || !again.Repeated || again.Token != p.Token || again.NonceID != first.NonceID {
		w.T.Fatalf("first %+v, again %+v", first, again)
	}
}

func bindings(w *World) {
	a := w.authorize("r1", nil)
	for field, change := range map[permit.Field]func(*permit.Expected){
		permit.FieldSubject:       func(e *permit.Expected) { e.Subject = "other" },
		permit.FieldCapability:    func(e *permit.Expected) { e.Capability = "other" },
		permit.FieldServer:        func(e *permit.Expected) { e.Server = "other" },
		permit.FieldTool:          func(e *permit.Expected) { e.Tool = "other" },
		permit.FieldRequestID:     func(e *permit.Expected) { e.RequestID = "other" },
		permit.FieldParameterHash: func(e *permit.Expected) { e.ParameterHash = strings.Repeat("0", 64) },
	} {
		e := call("r1")
		change(&e)
		_, err := w.Ann.Consume(w.ctx(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: e})
		w.want(string(field), err, permit.ErrBindingMismatch)
		var mismatch *permit.BindingMismatchError
		if !errors.As(err, &mismatch) || mismatch.Field != field {
			w.T.Fatalf("%s: %v", field, err)
		}
	}
	_, err := w.Ann.Consume(w.ctx(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("r1")})
	w.must(err)
}

func badPermits(w *World) {
	good := string(w.authorize("r1", nil).Permit)
	for name, c := range map[string]struct {
		permit string
		want   error
	}{
		"no JSON":          {"permit", permit.ErrMalformed},
		"cut off":          {good[:len(good)-2], permit.ErrMalformed},
		"duplicate member": {strings.Replace(good, `{"nonce":`, `{"nonce":1,"nonce":`, 1), permit.ErrMalformed},
		"not UTF-8":        {strings.Replace(good, "agent", "a\xffent", 1), permit.ErrMalformed},
		"a number":         {"5", permit.ErrMalformed},
		"empty":            {"", permit.ErrMalformed},
		"another schema":   {strings.Replace(good, permit.Schema, "chio.execution_nonce.v2", 1), permit.ErrUnsupportedSchema},
	} {
		_, err := w.Ann.Consume(w.ctx(), counterfoil.ConsumeParams{Permit: []byte(c.permit), Expected: call("r1")})
		w.want(name+" consumed", err, c.want)
		_, err = w.Ann.Check(w.ctx(), counterfoil.CheckParams{Permit: []byte(c.permit), Expected: call("r1")})
		w.want(name+" checked", err, c.want)
		p := request("k")
		p.Permit, p.Expected = []byte(c.permit), call("r1")
		w.refused(name+" in a begin", w.Ann, p, c.want)
	}
	forged := bytes.ReplaceAll([]byte(good), []byte(`"r1"`), []byte(`"r2"`))
	_, err := w.Ann.Consume(w.ctx(), counterfoil.ConsumeParams{Permit: forged, Expected: call("r2")})
	w.want("changed after it was signed", err, permit.ErrInvalidSignature)
}

func permitExpired(w *World) {
	a := w.authorize("r1", nil)
	w.Clock.Advance(2 * time.Minute)
	_, err := w.Ann.Consume(w.ctx(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("r1")})
	w.want("expired", err, permit.ErrExpired)
}

func permitOfVoidHold(w *World) {
	a := w.authorize("r1", amounts("acme", 3))
	_, err := w.Ann.Void(w.ctx(), counterfoil.VoidParams{ID: a.HoldID})
	w.must(err)
	p := request("k")
	p.Permit, p.Expected = a.Permit, call("r1")
	for _, want := range []error{permit.ErrHoldSettled, budget.ErrHoldSettled} {
		_, err = w.Ann.Consume(w.ctx(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("r1")})
		w.want("consume", err, want)
		_, err = w.Ann.Check(w.ctx(), counterfoil.CheckParams{Permit: a.Permit, Expected: call("r1")})
		w.want("check", err, want)
		w.refused("begin", w.Ann, p, want)
	}
}

func check(w *World) {
	a := w.authorize("r1", amounts("acme", 3))
	for range 2 {
		got, err := w.Ann.Check(w.ctx(), counterfoil.CheckParams{Permit: a.Permit, Expected: call("r1")})
		w.must(err)
		if got.NonceID == "" || got.HoldID != a.HoldID || !got.ExpiresAt.Equal(a.ExpiresAt) {
			w.T.Fatalf("check: %+v of %+v", got, a)
		}
	}
	got, err := w.Ann.Consume(w.ctx(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("r1")})
	w.must(err)
	if got.HoldID != a.HoldID {
		w.T.Fatalf("consume: %+v", got)
	}
	_, err = w.Ann.Check(w.ctx(), counterfoil.CheckParams{Permit: a.Permit, Expected: call("r1")})
	w.want("after its use", err, permit.ErrReplayed)
}

func liveFirst(w *World) {
	w.execute(w.Ann, request("k"))
	p := request("k")
	p.Permit, p.Expected = []byte("not even JSON"), call("r1")
	w.refused("in flight", w.Ann, p, operation.ErrInFlight)
}

func authorizeAgain(w *World) {
	first := w.authorize("r1", amounts("acme", 10))
	again := w.authorize("r1", amounts("acme", 10))
	if first.Repeated || !again.Repeated || !bytes.Equal(first.Permit, again.Permit) || again.HoldID != first.HoldID {
		w.T.Fatalf("first %+v, again %+v", first, again)
	}
	w.standing("held once", "acme", 0, 10)
	_, err := w.Ann.Authorize(w.ctx(), counterfoil.AuthorizeParams{Call: call("r1"), TTL: time.Minute, Hold: amounts("acme", 11)})
	w.want("with another amount", err, budget.ErrRequestIDReused)
	_, err = w.Ann.Consume(w.ctx(), counterfoil.ConsumeParams{Permit: first.Permit, Expected: call("r1")})
	w.must(err)
	_, err = w.Ann.Authorize(w.ctx(), counterfoil.AuthorizeParams{Call: call("r1"), TTL: time.Minute, Hold: amounts("acme", 10)})
	w.want("after its use", err, budget.ErrHoldSettled)
}

func holds(w *World) {
	h, err := w.Ann.Hold(w.ctx(), counterfoil.HoldParams{RequestID: "h", Entries: amounts("acme/search", 5), TTL: time.Hour})
	w.must(err)
	if h.ID == "" || h.Repeated || len(h.Budgets) != 2 || h.ExpiresAt.Before(w.Clock.Now().Add(time.Hour)) {
		w.T.Fatalf("hold: %+v", h)
	}
	again, err := w.Ann.Hold(w.ctx(), counterfoil.HoldParams{RequestID: "h", Entries: amounts("acme/search", 5), TTL: time.Hour})
	w.must(err)
	if again.ID != h.ID || !again.Repeated {
		w.T.Fatalf("again: %+v", again)
	}
	_, err = w.Bob.Void(w.ctx(), counterfoil.VoidParams{ID: h.ID})
	w.want("another owner's", err, budget.ErrHoldUnknown)
	for range 2 {
		_, err = w.Ann.Void(w.ctx(), counterfoil.VoidParams{ID: h.ID})
		w.must(err)
	}
	w.standing("void", "acme", 0, 0)
	p := request("k")
	p.HoldID = h.ID
	w.refused("a void hold", w.Ann, p, budget.ErrHoldSettled)

	other, err := w.Ann.Hold(w.ctx(), counterfoil.HoldParams{RequestID: "other", Entries: amounts("acme", 5), TTL: time.Hour})
	w.must(err)
	p.HoldID = other.ID
	b := w.execute(w.Ann, p)
	_, err = w.Ann.Void(w.ctx(), counterfoil.VoidParams{ID: other.ID})
	w.want("fenced", err, budget.ErrHoldFenced)
	w.complete(w.Ann, b, text("x"), nil)
	w.standing("captured in full", "acme", 5, 0)

	brief, err := w.Ann.Hold(w.ctx(), counterfoil.HoldParams{RequestID: "brief", Entries: amounts("acme", 5), TTL: time.Second})
	w.must(err)
	w.Clock.Advance(time.Minute)
	_, err = w.Ann.Void(w.ctx(), counterfoil.VoidParams{ID: brief.ID})
	w.want("expired", err, budget.ErrHoldExpired)
}

func holdReused(w *World) {
	_, err := w.Ann.Hold(w.ctx(), counterfoil.HoldParams{RequestID: "h", Entries: amounts("acme", 5), TTL: time.Hour})
	w.must(err)
	_, err = w.Ann.Hold(w.ctx(), counterfoil.HoldParams{RequestID: "h", Entries: amounts("acme", 6), TTL: time.Hour})
	w.want("other content", err, budget.ErrRequestIDReused)
}

func exceeded(w *World) {
	_, err := w.Ann.Hold(w.ctx(), counterfoil.HoldParams{RequestID: "h", Entries: amounts("acme/search", 50), TTL: time.Hour})
	w.must(err)
	p := request("k")
	p.Spend = amounts("acme/search", 60)
	_, err = w.Ann.Begin(w.ctx(), p)
	w.want("too much", err, budget.ErrExceeded)
	var e *budget.ExceededError
	if !errors.As(err, &e) || len(e.Refused) != 2 {
		w.T.Fatalf("refused: %v", err)
	}
	at := slices.IndexFunc(e.Refused, func(f budget.Figures) bool { return f.Name == "acme/search" })
	if f := e.Refused[at]; f.Limit != 60 || f.Held != 50 || f.Spent != 0 || f.Remaining != 10 || f.Amount != 60 || f.Unit != "cent" || !f.Lifetime {
		w.T.Fatalf("figures: %+v", f)
	}
	w.standing("nothing was taken", "acme", 0, 50)
	p.Spend = amounts("acme/search", 10)
	w.execute(w.Ann, p)
}

func unknownBudget(w *World) {
	p := request("k")
	p.Spend = amounts("nobody/defined", 1)
	w.refused("spend", w.Ann, p, budget.ErrBudgetUnknown)
	_, err := w.Ann.Hold(w.ctx(), counterfoil.HoldParams{RequestID: "h", Entries: amounts("nobody", 5), TTL: time.Hour})
	w.want("hold", err, budget.ErrBudgetUnknown)
	p = request("k")
	p.HoldID = strings.Repeat("ab", 32)
	w.refused("a hold that nobody made", w.Ann, p, budget.ErrHoldUnknown)
}

func uncaptured(w *World) {
	a := w.authorize("r1", amounts("acme/search", 50))
	p := request("k")
	p.Permit, p.Expected = a.Permit, call("r1")
	b := w.execute(w.Ann, p)
	done := w.complete(w.Ann, b, text("x"), new(amounts("acme/search", 70)))
	if len(done.Uncaptured) != 1 || done.Uncaptured[0] != (counterfoil.Entry{Budget: "acme/search", Amount: 20}) {
		w.T.Fatalf("complete: %+v", done)
	}
	w.standing("cut to the hold", "acme", 50, 0)
}

func invalid(w *World) {
	for name, change := range map[string]func(*counterfoil.BeginParams){
		"no key":           func(p *counterfoil.BeginParams) { p.Key = "" },
		"a long key":       func(p *counterfoil.BeginParams) { p.Key = strings.Repeat("k", 257) },
		"control in key":   func(p *counterfoil.BeginParams) { p.Key = "a\nb" },
		"not UTF-8":        func(p *counterfoil.BeginParams) { p.Key = "a\xff" },
		"a short lease":    func(p *counterfoil.BeginParams) { p.Lease = time.Millisecond },
		"a long lease":     func(p *counterfoil.BeginParams) { p.Lease = 2 * time.Hour },
		"a negative lease": func(p *counterfoil.BeginParams) { p.Lease = -time.Second },
		"metadata":         func(p *counterfoil.BeginParams) { p.Metadata = []byte(`"text"`) },
		"much metadata":    func(p *counterfoil.BeginParams) { p.Metadata = []byte(`{"a":"` + strings.Repeat("x", 5000) + `"}`) },
		"a budget twice":   func(p *counterfoil.BeginParams) { p.Spend = amounts("acme", 1, "acme", 2) },
		"a large amount":   func(p *counterfoil.BeginParams) { p.Spend = []counterfoil.Entry{{Budget: "acme", Amount: 1 << 60}} },
	} {
		p := request("k")
		change(&p)
		w.refused(name, w.Ann, p, state.ErrInvalid)
	}
	_, err := w.Ann.Authorize(w.ctx(), counterfoil.AuthorizeParams{Call: call("r1"), TTL: 2 * time.Hour})
	w.want("a long permit", err, permit.ErrInvalid)
	_, err = w.Ann.Hold(w.ctx(), counterfoil.HoldParams{RequestID: "h", TTL: time.Hour})
	w.want("a hold of nothing", err, state.ErrInvalid)
	_, err = w.Ann.Operation(w.ctx(), "nonsense")
	w.want("an id", err, state.ErrInvalid)
	_, err = w.Olga.Resolve(w.ctx(), counterfoil.ResolveParams{ID: operation.ID("ann", "k"), Outcome: operation.Happened})
	w.want("no note", err, state.ErrInvalid)
	w.execute(w.Ann, request("k"))
}

func cancelled(w *World) {
	ctx, cancel := context.WithCancel(w.ctx())
	cancel()
	if b, err := w.Ann.Begin(ctx, request("k")); err == nil || b.State != "" {
		w.T.Fatalf("%+v, %v", b, err)
	}
}

func race(w *World) {
	const callers = 32
	var granted, refused atomic.Int64
	var working sync.WaitGroup
	for range callers {
		working.Go(func() {
			b, err := w.Ann.Begin(w.ctx(), request("k"))
			switch {
			case err == nil && b.State == counterfoil.Execute:
				granted.Add(1)
			case errors.Is(err, operation.ErrInFlight):
				refused.Add(1)
			default:
				w.T.Errorf("%+v, %v", b, err)
			}
		})
	}
	working.Wait()
	if granted.Load() != 1 || refused.Load() != callers-1 {
		w.T.Fatalf("%d executed, %d in flight", granted.Load(), refused.Load())
	}
}
