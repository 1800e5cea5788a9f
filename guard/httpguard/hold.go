package httpguard

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/permit"
)

// holdTime is how long a hold lasts that nothing claims: from then on a claim keeps it, and a guard that died between the
// two steps keeps nothing longer.
const holdTime = 30 * time.Second

// holdTries bounds how often a hold that another request of the key took away is made anew.
const holdTries = 6

// holder is a Caller that holds what a call may cost before it claims its operation. It asks for the claim first, with a
// hold that is not there yet: whatever stands under the key answers alone, so that a replay holds nothing and is given even
// if the budget is used up.
type holder struct {
	counterfoil.Caller
	owner   string
	entries []counterfoil.Entry
}

// Begin claims an operation together with its hold.
func (h *holder) Begin(ctx context.Context, p counterfoil.BeginParams) (counterfoil.Begun, error) {
	// The same request finds the hold of a guard that died before its claim.
	request := h.request(&p)
	p.HoldID = ids.Hold(h.owner, request)
	var refused error // the hold was
	made := false
	for n := 0; ; n++ {
		begun, err := h.Caller.Begin(ctx, p)
		if made && (err != nil || begun.State != counterfoil.Execute) {
			h.giveBack(ctx, p.HoldID, err)
		}
		switch {
		case !noHold(err):
			return begun, err
		case n == holdTries:
			return counterfoil.Begun{}, fmt.Errorf("httpguard: others took away every hold of the call: %w", counterfoil.ErrUnavailable)
		case refused != nil:
			return counterfoil.Begun{}, refused
		}
		held, err := h.Hold(ctx, counterfoil.HoldParams{RequestID: request, Entries: h.entries, TTL: holdTime})
		switch {
		case err == nil:
			p.HoldID, made = held.ID, true
		case errors.Is(err, budget.ErrHoldSettled):
			// An earlier call under the key was taken back, or another one has it by now.
			if request, err = another(request); err != nil {
				return counterfoil.Begun{}, err
			}
			p.HoldID, made = ids.Hold(h.owner, request), false
		case errors.Is(err, budget.ErrExceeded):
			refused, made = err, false // unless another call under the key has it by now
		default:
			return counterfoil.Begun{}, err
		}
	}
}

// noHold reports whether a claim failed for nothing but its hold. A server may say so as of a permit's hold, but the permit
// of a call that is held for carries none.
func noHold(err error) bool {
	for _, gone := range []error{
		budget.ErrHoldUnknown, budget.ErrHoldExpired, budget.ErrHoldSettled, budget.ErrHoldFenced, permit.ErrHoldSettled, permit.ErrHoldExpired,
	} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// request names the hold of a call.
func (h *holder) request(p *counterfoil.BeginParams) string {
	parts := make([]string, 0, 2+2*len(h.entries))
	parts = append(parts, p.Key, string(p.Fingerprint[:]))
	for _, e := range h.entries {
		parts = append(parts, e.Budget, strconv.FormatUint(e.Amount, 10))
	}
	sum := ids.Hash("counterfoil.http-hold.v1", parts...)
	return "http-" + hex.EncodeToString(sum[:])
}

// another names another hold of the same request.
func another(request string) (string, error) {
	var drawn [16]byte
	if err := entropy.Fill(drawn[:]); err != nil {
		return "", err
	}
	return request[:len("http-")+64] + "-" + hex.EncodeToString(drawn[:]), nil
}

// giveBack voids a hold that no claim took. If it cannot, the hold ends by itself.
func (h *holder) giveBack(ctx context.Context, id string, reason error) {
	if errors.Is(reason, counterfoil.ErrUnknown) {
		return // a claim may have taken it
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdTime)
	defer cancel()
	_, _ = h.Void(ctx, counterfoil.VoidParams{ID: id})
}
