package guard_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/guard"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
)

func TestProblem(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		err       error
		code      api.Code
		retryable bool
		after     time.Duration
	}{
		"unknown comes before what it wraps":  {fmt.Errorf("%w: %w", counterfoil.ErrUnknown, &operation.InFlightError{RetryAfter: time.Minute}), api.CommitUnknown, true, 0},
		"in flight says when it is over":      {&operation.InFlightError{RetryAfter: 7 * time.Second}, api.InFlight, true, 7 * time.Second},
		"in flight waits for at least 1 s":    {&operation.InFlightError{RetryAfter: time.Millisecond}, api.InFlight, true, time.Second},
		"outcome unknown is for an operator":  {operation.ErrOutcomeUnknown, api.OutcomeUnknown, false, 0},
		"another request under the key":       {operation.ErrMismatch, api.KeyReused, false, 0},
		"receipt too large":                   {&operation.NotRetainedError{}, api.ReceiptNotRetained, false, 0},
		"budget for ever":                     {&budget.ExceededError{}, api.BudgetExceeded, false, 0},
		"permit that was used":                {fmt.Errorf("x: %w", permit.ErrReplayed), api.PermitReplayed, false, 0},
		"permit for another call":             {&permit.BindingMismatchError{Field: permit.FieldTool}, api.PermitBindingMismatch, false, 0},
		"revoked permit, a new one is coming": {&permit.Error{Reason: permit.ReasonRevoked, RetryAfter: time.Second}, api.PermitRevoked, true, time.Second},
		"whatever else is no yes":             {errors.New("secret of the store"), api.Internal, false, 0},
	} {
		p := guard.Problem(c.err, now)
		if p.Code != c.code || p.Retryable != c.retryable || c.after != 0 && p.RetryAfter != c.after {
			t.Errorf("%s: %s, retryable %v after %s; want %s, %v, %s", name, p.Code, p.Retryable, p.RetryAfter, c.code, c.retryable, c.after)
		}
		if p.Detail == c.err.Error() {
			t.Errorf("%s: the detail is the error's own text", name)
		}
	}
}
