package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/challenge"
	"github.com/counterfoil/counterfoil/client"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

func TestALostReplyIsSettledBySendingAgain(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]loss{"reply": lostReply, "request": lostRequest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, client.Options{})
			ctx := t.Context()
			_, err := r.caller.DefineBudget(ctx, budget.Definition{Name: "b", Unit: "cent", Limit: 100, Window: budget.Window{Kind: budget.Lifetime}})
			r.must(err)
			repeated := name == "reply"

			r.lose(l, l)
			p := begin("k")
			p.Spend = []counterfoil.Entry{{Budget: "b", Amount: 5}}
			b, err := r.caller.Begin(ctx, p)
			r.must(err)
			if b.State != counterfoil.Execute || b.Repeated != repeated || r.sends() != 3 {
				t.Fatalf("begin: %+v after %d sends", b, r.sends())
			}
			r.lose(l)
			_, err = r.caller.Complete(ctx, counterfoil.CompleteParams{ID: b.ID, Token: b.Token, Receipt: operation.Receipt{Status: 200}})
			r.must(err)
			r.lose(l)
			spent, err := r.caller.Spend(ctx, budget.SpendParams{RequestID: "s", Entries: []budget.Entry{{Budget: "b", Amount: 7}}})
			r.must(err)
			r.lose(l)
			r.must(r.caller.Refund(ctx, spent.ID))
			r.lose(l)
			a, err := r.caller.Authorize(ctx, counterfoil.AuthorizeParams{Call: call("r"), Hold: []counterfoil.Entry{{Budget: "b", Amount: 3}}})
			r.must(err)
			r.lose(l)
			used, err := r.caller.Consume(ctx, counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("r")})
			r.must(err)
			if used.Repeated != repeated {
				t.Fatalf("consume: %+v", used)
			}
			r.lose(l)
			issued, err := r.caller.Issue(ctx, challenge.IssueParams{Job: challenge.Job{1}})
			r.must(err)
			r.lose(l)
			_, err = r.caller.ConsumeChallenge(ctx, challenge.ConsumeParams{Job: issued.Job, Nonce: issued.Nonce, Epoch: issued.Epoch})
			r.must(err)
			r.lose(l)
			e, err := r.caller.AdvanceEpoch(ctx, challenge.AdvanceParams{From: 1})
			r.must(err)
			if e.Epoch != 2 || e.Repeated != repeated {
				t.Fatalf("epoch: %+v", e)
			}
			r.lose(l)
			got, err := r.caller.Budget(ctx, "b")
			r.must(err)
			if got.Spent != 5 || got.Held != 3 {
				t.Fatalf("the budget after all this: %+v", got)
			}
		})
	}
}

func TestAnAnswerThatStaysLostIsUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.every = lostReply
	_, err := r.caller.Begin(t.Context(), begin("k"))
	r.want("begin", err, state.ErrUnknown)
	r.wantNot("begin", err, state.ErrUnavailable)
	_, err = r.caller.Consume(t.Context(), counterfoil.ConsumeParams{Permit: []byte("{}"), Expected: call("r")})
	r.want("consume", err, state.ErrUnknown, permit.ErrUnknown)
	_, err = r.caller.Operation(t.Context(), operation.ID("ann", "k"))
	r.want("what only reads", err, state.ErrUnavailable)
	r.wantNot("what only reads", err, state.ErrUnknown)
}

func TestARequestThatNeverLeftIsUnavailable(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	c, err := client.New(client.Options{URL: "http://" + nobody, Token: "cf_" + strings.Repeat("A", 43), RetryFor: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.As("", "").Begin(t.Context(), begin("k"))
	if !errors.Is(err, state.ErrUnavailable) || errors.Is(err, state.ErrUnknown) {
		t.Fatalf("begin: %v", err)
	}
	_, _, err = c.As("", "").CreateToken(t.Context(), access.Grant{Name: "x", Owner: "o", Roles: []access.Role{access.Read}})
	if !errors.Is(err, state.ErrUnavailable) || errors.Is(err, state.ErrUnknown) {
		t.Fatalf("what must not be sent twice: %v", err)
	}
	if strings.Contains(err.Error(), "/v1/") {
		t.Fatalf("the error shows the path: %v", err)
	}
}

func TestWhatMustNotHappenTwiceIsSentOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, client.Options{})
	r.lose(lostReply)
	_, _, err := r.caller.CreateToken(t.Context(), access.Grant{Name: "x", Owner: "o", Roles: []access.Role{access.Read}})
	r.want("create a token", err, state.ErrUnknown)
	if r.sends() != 1 {
		t.Fatalf("sent %d times", r.sends())
	}
	r.lose(lostReply)
	_, err = r.caller.RotateKey(t.Context())
	r.want("rotate", err, state.ErrUnknown)
	if r.sends() != 1 {
		t.Fatalf("sent %d times", r.sends())
	}
}

func TestAPermitThatExpiredWhileItsAnswerWasLostIsUnknownAndNoRefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t, client.Options{})
	a, err := r.caller.Authorize(t.Context(), counterfoil.AuthorizeParams{Call: call("r"), TTL: 2 * time.Second})
	r.must(err)
	r.lose(lostReply, loss{before: func() { r.Clock.Advance(time.Minute) }})
	_, err = r.caller.Consume(t.Context(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call("r")})
	r.want("consume", err, state.ErrUnknown, permit.ErrUnknown)
	r.wantNot("consume", err, permit.ErrExpired)
}

// problem answers with the problem of a code.
func problem(code api.Code, header ...string) loss {
	return loss{instead: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := api.NewProblem(code, "as the test wants it")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.Header().Set("Content-Type", api.ProblemType)
		w.WriteHeader(p.Status)
		fmt.Fprintf(w, `{"type":%q,"title":%q,"status":%d,"code":%q,"retryable":%t}`, p.Type, p.Title, p.Status, p.Code, p.Retryable)
	})}
}

func TestWhatPassesSoonIsSentAgainAfterTheWait(t *testing.T) {
	t.Parallel()
	for _, code := range []api.Code{api.StoreUnavailable, api.Overloaded, api.Draining, api.Latched, api.CommitUnknown} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, client.Options{})
			r.lose(problem(code), problem(code, "Retry-After", "1"))
			before := time.Now()
			r.must(beginError(r, "k"))
			if took := time.Since(before); r.sends() != 3 || took < time.Second {
				t.Fatalf("%d sends in %s: Retry-After was not waited for", r.sends(), took)
			}
			r.lose(problem(code, "Retry-After", "3600"))
			err := beginError(r, "other")
			if err == nil || r.sends() != 1 {
				t.Fatalf("a wait of an hour: %v after %d sends", err, r.sends())
			}
			if wait := client.RetryAfter(err); wait != time.Hour && code != api.CommitUnknown {
				t.Fatalf("RetryAfter says %s", wait)
			}
		})
	}
}

func beginError(r *rig, key string) error {
	_, err := r.caller.Begin(r.t.Context(), begin(key))
	return err
}

func TestAnAnswerIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, client.Options{})
	for _, code := range []api.Code{
		api.InFlight, api.OutcomeUnknown, api.BudgetExceeded, api.OwnerQuota, api.StoreFull, api.Recovering, api.ClockRefused, api.KeyUnknown,
		api.RecordCorrupt, api.Unauthenticated, api.Forbidden, api.Invalid, api.KeyReused,
	} {
		r.lose(problem(code, "Retry-After", "1"), problem(api.Aborted))
		err := beginError(r, "k")
		var e *client.Error
		if !errors.As(err, &e) || e.Problem.Code != code || r.sends() != 1 {
			t.Errorf("%s: %v after %d sends", code, err, r.sends())
		}
	}
}

func TestEveryCodeHasAMeaning(t *testing.T) {
	t.Parallel()
	r := newRig(t, client.Options{RetryFor: -1})
	ours := map[api.Code]bool{api.MethodNotAllowed: true, api.UnsupportedMediaType: true} // faults of this package, if they come
	for _, row := range api.Codes() {
		r.lose(problem(row.Code))
		err := beginError(r, "k")
		var e *client.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v is no *client.Error", row.Code, err)
			continue
		}
		if len(e.Unwrap()) != 2 && !ours[row.Code] {
			t.Errorf("%s has no error of a capability", row.Code)
		}
		if !errors.Is(err, api.NewProblem(row.Code, "")) {
			t.Errorf("%s: errors.Is does not find the problem", row.Code)
		}
		unknown := row.Code == api.CommitUnknown || row.Code == api.Internal
		if errors.Is(err, state.ErrUnknown) != unknown {
			t.Errorf("%s: unknown is %v", row.Code, !unknown)
		}
	}
}

func TestAStrangersAnswerIsNeverAYes(t *testing.T) {
	t.Parallel()
	answer := func(status int, media, body string) loss {
		return loss{instead: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		})}
	}
	good := `{"state":"execute","operation":{"id":"` + operation.ID("ann", "k") + `","key":"k","fence":1,"created_at":"2030-01-02T03:04:05.678Z"`
	for name, l := range map[string]loss{
		"a page":              answer(200, "text/html", "<html>welcome</html>"),
		"an empty object":     answer(200, "application/json", "{}"),
		"no JSON":             answer(201, "application/json", "execute"),
		"cut off":             answer(201, "application/json", `{"state":"execute","operation":{`),
		"another token":       answer(201, "application/json", good+`,"token":"11111111111111111111111111111111"}}`),
		"no token":            answer(201, "application/json", good+`}}`),
		"another key":         answer(200, "application/json", `{"state":"replay","operation":{"id":"`+operation.ID("ann", "x")+`","key":"x","created_at":"2030-01-02T03:04:05.678Z"}}`),
		"another state":       answer(200, "application/json", strings.Replace(good, "execute", "maybe", 1)+`}}`),
		"a gateway":           answer(502, "text/html", "bad gateway"),
		"a problem of others": answer(503, api.ProblemType, `{"title":"no"}`),
		"a later problem":     answer(599, api.ProblemType, `{"status":599,"code":"of_tomorrow","title":"?"}`),
		"a redirect":          {instead: http.RedirectHandler("http://127.0.0.1:1/", http.StatusTemporaryRedirect)},
		"endless": {instead: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			chunk := []byte(strings.Repeat(" ", 1<<20))
			for range client.MaxAnswer>>20 + 2 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, client.Options{RetryFor: -1})
			r.every = l
			_, err := r.caller.Begin(t.Context(), begin("k"))
			r.want("begin", err, state.ErrUnknown)
			if _, err := r.caller.Check(t.Context(), counterfoil.CheckParams{Permit: []byte("{}"), Expected: call("r")}); err == nil {
				t.Fatal("check: a yes")
			}
			if _, err := r.caller.Consume(t.Context(), counterfoil.ConsumeParams{Permit: []byte("{}"), Expected: call("r")}); err == nil {
				t.Fatal("consume: a yes")
			}
		})
	}
}

func TestTheTokenGoesNowhereElse(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		t.Errorf("a redirect was followed to %s with %d headers", req.URL.Path, len(req.Header))
	}))
	t.Cleanup(elsewhere.Close)
	r := newRig(t, client.Options{RetryFor: -1})
	r.every = loss{instead: http.RedirectHandler(elsewhere.URL, http.StatusPermanentRedirect)}
	_ = beginError(r, "k")
}

// password stands in a URL where none belongs.
const password = "hunter2"

func TestErrorsShowNoSecret(t *testing.T) {
	t.Parallel()
	r := newRig(t, client.Options{RetryFor: -1})
	token := counterfoil.Token{0xaa, 0xbb, 0xcc}
	var all []error
	for _, l := range []loss{lostReply, lostRequest, problem(api.Unauthenticated), problem(api.CommitUnknown), {instead: http.NotFoundHandler()}} {
		r.lose(l, l, l)
		_, err := r.caller.Complete(t.Context(), counterfoil.CompleteParams{ID: operation.ID("ann", "k"), Token: token, Receipt: operation.Receipt{Body: []byte("my receipt")}})
		all = append(all, err)
		_, err = r.caller.ConsumeChallenge(t.Context(), challenge.ConsumeParams{Nonce: challenge.Nonce{0xaa, 0xbb, 0xcc}, Epoch: 1})
		all = append(all, err)
	}
	c, err := client.New(client.Options{URL: r.url, Token: r.admin})
	r.must(err)
	all = append(all, fmt.Errorf("%v %+v %#v", c, c, c.As("a", "b")))
	_, err = client.New(client.Options{URL: "http://user:" + password + "@host", Token: r.admin})
	all = append(all, err)
	_, err = client.New(client.Options{URL: r.url, Token: r.admin + "x"})
	all = append(all, err)
	for _, err := range all {
		if err == nil {
			t.Fatal("no error to look at")
		}
		for _, secret := range []string{r.admin, r.admin[3:20], "aabbcc", "my receipt", password} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q is shown by: %v", secret, err)
			}
		}
	}
}

func TestTheContextsEndAfterTheSendIsUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, client.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	r.lose(loss{reply: true, before: cancel})
	_, err := r.caller.Begin(ctx, begin("k"))
	r.want("begin", err, state.ErrUnknown, context.Canceled)
	_, err = r.caller.Begin(ctx, begin("k2"))
	r.want("begin after the end", err, state.ErrUnavailable, context.Canceled)
}

func TestOptionsThatCannotBeRightAreRefused(t *testing.T) {
	t.Parallel()
	token := "cf_" + strings.Repeat("A", 43)
	for name, o := range map[string]client.Options{
		"no URL":      {Token: token},
		"a scheme":    {URL: "ftp://host", Token: token},
		"no host":     {URL: "http://", Token: token},
		"a query":     {URL: "http://host?a=b", Token: token},
		"a fragment":  {URL: "http://host#a", Token: token},
		"a password":  {URL: "http://u:" + password + "@host", Token: token},
		"no token":    {URL: "http://host"},
		"short token": {URL: "http://host", Token: "cf_abc"},
	} {
		if _, err := client.New(o); !errors.Is(err, counterfoil.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
