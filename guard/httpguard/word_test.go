package httpguard_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/guard/httpguard"
	"github.com/counterfoil/counterfoil/internal/storetest"
)

// behindMiddleware is a handler that has effects, behind middleware that answers by itself if it is told to.
func (r *rig) behindMiddleware(status int, o httpguard.Options) {
	effects := httpguard.Effects(r.handler)
	r.guarded = r.guard(o).Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Refuse") != "" {
			w.WriteHeader(status)
			return
		}
		effects.ServeHTTP(w, req)
	}))
}

func TestMiddlewareThatRefusesReleasesTheClaim(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 408, 425, 429} {
		r := inMemory(t, httpguard.Options{}, paid)
		r.behindMiddleware(status, httpguard.Options{Effects: true, Default: httpguard.Policy{Spend: []counterfoil.Entry{{Budget: "acme", Amount: 1}}}})
		r.define("acme", 1)
		for range 2 {
			r.want(r.post("k1", "a", "Refuse", "1"), status, "not_performed", 0)
		}
		r.stands("acme", 0, 0)
		r.want(r.post("k1", "a"), 201, "execute", 1)
		r.want(r.post("k1", "a", "Refuse", "1"), 201, "replay", 1)
	}
}

func TestMiddlewareReleasesByTheFiveStatusesUnderStrictAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status   int
		policy   httpguard.Policy
		effects  bool
		recorded bool
	}{
		"another status":            {404, httpguard.Policy{}, true, true},
		"server error":              {503, httpguard.Policy{}, true, false},
		"nothing is promised":       {429, httpguard.Policy{}, false, true},
		"stripe":                    {429, httpguard.Policy{Record: httpguard.Stripe}, true, true},
		"success only":              {429, httpguard.Policy{Record: httpguard.SuccessOnly}, true, false},
		"recorded by the route":     {429, httpguard.Policy{Also: []int{429}}, true, true},
		"not recorded by the route": {429, httpguard.Policy{Never: []int{429}}, true, false},
	} {
		r := inMemory(t, httpguard.Options{}, paid)
		r.behindMiddleware(c.status, httpguard.Options{Effects: c.effects, Default: c.policy})
		outcome := "outcome_unknown"
		if c.recorded {
			outcome = "execute"
		}
		if got := r.post("k1", "a", "Refuse", "1").Header.Get(httpguard.HeaderOutcome); got != outcome {
			t.Errorf("%s: the outcome is %s, want %s", name, got, outcome)
		}
	}
}

func TestRefusalOfTheHandlerItselfIsRecorded(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"wrapped": httpguard.Effects(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })).ServeHTTP,
		"by word": func(w http.ResponseWriter, req *http.Request) {
			httpguard.Reached(req.Context())
			w.WriteHeader(http.StatusTooManyRequests)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := inMemory(t, httpguard.Options{Effects: true}, handler)
			r.want(r.post("k1", "a"), 429, "execute", 1)
			r.want(r.post("k1", "a"), 429, "replay", 1)
		})
	}
}

// pass lets time pass for the store and for the timers of the process.
func (r *rig) pass(d time.Duration) {
	r.Clock.Advance(d)
	<-time.After(d)
	synctest.Wait()
}

func TestLongCallKeepsItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := httpguard.Options{Default: httpguard.Policy{Lease: 3 * time.Second}}
		r := newRig(t, storetest.Memory(t), o, nil)
		r.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			r.calls.Add(1)
			for range 20 {
				r.pass(time.Second)
				r.problem(r.post("k1", "a"), 409, "in_flight", 1)
			}
			w.WriteHeader(http.StatusCreated)
		})
		r.guarded = r.guard(o).Handler(r.handler)
		r.want(r.post("k1", "a"), 201, "execute", 1)
		r.want(r.post("k1", "a"), 201, "replay", 1)
	})
}

func TestAnswerAfterALostLeaseIsGivenButNotRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := httpguard.Options{Default: httpguard.Policy{Lease: 3 * time.Second}}
		r := newRig(t, storetest.Memory(t), o, nil)
		r.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			r.calls.Add(1)
			r.Clock.Advance(time.Minute) // the process stood still
			r.pass(time.Second)
			r.problem(r.post("k1", "a"), 409, "outcome_unknown", 1)
			w.WriteHeader(http.StatusCreated)
		})
		r.guarded = r.guard(o).Handler(r.handler)
		r.want(r.post("k1", "a"), 201, "not_recorded", 1)
		r.problem(r.post("k1", "a"), 409, "outcome_unknown", 1)
	})
}

func TestTimeoutLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	r := inMemory(t, httpguard.Options{Default: httpguard.Policy{Timeout: time.Millisecond}}, func(w http.ResponseWriter, req *http.Request) {
		<-req.Context().Done()
		w.WriteHeader(http.StatusGatewayTimeout)
	})
	r.want(r.post("k1", "a"), 504, "outcome_unknown", 1)
	r.lapse()
	r.problem(r.post("k1", "a"), 409, "outcome_unknown", 1)
}
