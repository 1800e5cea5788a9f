package httpguard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/guard/httpguard"
)

// leaving is a Caller whose client hangs up in the middle of the claim.
type leaving struct {
	counterfoil.Caller
	hangUp context.CancelFunc
}

func (l leaving) Begin(ctx context.Context, p counterfoil.BeginParams) (counterfoil.Begun, error) {
	l.hangUp()
	if ctx.Err() != nil {
		return counterfoil.Begun{}, counterfoil.ErrUnknown // as a claim that was cut off is
	}
	return l.Caller.Begin(ctx, p)
}

func TestAClientThatHangsUpDuringItsClaimLeavesNoClaimWithoutAHolder(t *testing.T) {
	t.Parallel()
	ctx, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	var r *rig
	o := httpguard.Options{As: func(owner string) counterfoil.Caller {
		return leaving{r.core.As("default", owner), hangUp}
	}}
	r = inMemory(t, o, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/payments", nil)
	req.Header.Set("X-Api-Key", "alice")
	req.Header.Set("Idempotency-Key", "order-1")
	r.guarded.ServeHTTP(httptest.NewRecorder(), req)
	if got := r.calls.Load(); got != 1 {
		t.Fatalf("the handler was called %d times, want once", got)
	}
	again := httptest.NewRecorder()
	r.guarded.ServeHTTP(again, req.WithContext(context.Background()))
	if again.Code != http.StatusCreated || again.Header().Get("Idempotent-Replayed") != "true" || r.calls.Load() != 1 {
		t.Errorf("again: %d, %v, %d calls", again.Code, again.Header(), r.calls.Load())
	}
}
