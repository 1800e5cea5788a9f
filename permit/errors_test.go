package permit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/permit"
)

var sentinels = map[permit.Reason]error{
	"malformed": permit.ErrMalformed, "unsupported_schema": permit.ErrUnsupportedSchema, "expired": permit.ErrExpired,
	"not_yet_valid": permit.ErrNotYetValid, "binding_mismatch": permit.ErrBindingMismatch,
	"invalid_signature": permit.ErrInvalidSignature, "replayed": permit.ErrReplayed, "revoked": permit.ErrRevoked,
	"full": permit.ErrFull, "owner_full": permit.ErrOwnerFull, "hold_settled": permit.ErrHoldSettled,
	"hold_expired": permit.ErrHoldExpired, "unavailable": permit.ErrUnavailable, "unknown": permit.ErrUnknown,
}

func TestEachReasonIsFoundThroughWrappersAndIsNoOther(t *testing.T) {
	t.Parallel()
	for reason, sentinel := range sentinels {
		err := fmt.Errorf("while consuming: %w", &permit.Error{Reason: reason, Detail: "here", Err: errors.New("beneath")})
		for other, otherSentinel := range sentinels {
			if errors.Is(err, otherSentinel) != (reason == other) {
				t.Errorf("%s: errors.Is(%s) = %v", reason, other, !(reason == other))
			}
		}
		if got, ok := permit.ReasonOf(err); !ok || got != reason {
			t.Errorf("%s: ReasonOf says %s, %v", reason, got, ok)
		}
		if text := sentinel.Error(); !strings.HasPrefix(text, "permit: ") || text == "permit: "+string(reason) {
			t.Errorf("%s: %q is no sentence", reason, text)
		}
	}
}

func TestDetailIsNoPartOfTheReason(t *testing.T) {
	t.Parallel()
	detailed := &permit.Error{Reason: permit.ReasonExpired, Detail: "x"}
	if permit.ErrExpired.Is(detailed) {
		t.Error("an error with a detail serves as a sentinel")
	}
	if !errors.Is(detailed, permit.ErrExpired) {
		t.Error("a detail hides the reason")
	}
}

func TestBindingMismatchIsFoundByReasonAndByField(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("wrapped: %w", &permit.BindingMismatchError{Field: permit.FieldTool})
	var mismatch *permit.BindingMismatchError
	if !errors.Is(err, permit.ErrBindingMismatch) || errors.Is(err, permit.ErrExpired) || !errors.As(err, &mismatch) || mismatch.Field != "tool" {
		t.Errorf("%v", err)
	}
	if reason, ok := permit.ReasonOf(err); !ok || reason != permit.ReasonBindingMismatch {
		t.Errorf("%s, %v", reason, ok)
	}
	if reason, ok := permit.ReasonOf(errors.New("other")); ok {
		t.Errorf("a foreign error has the reason %s", reason)
	}
}
