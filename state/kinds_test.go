package state_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/state"
)

// opsOn gives every op there is, well formed but for the kind of its key.
func opsOn(k state.Key) map[string]state.Op {
	t, v := state.Token{1}, state.Version{1}
	claim := state.Claim{Key: k, Token: t, State: state.Settled, Expires: start + day}
	update := state.Update{Key: k, Token: t, Expires: start + day}
	if k.Kind == state.KindOperation {
		update.Expires = 0
	}
	return map[string]state.Op{
		"Claim": claim, "Update": update, "Settle": state.Settle{Key: k, Token: t}, "Drop": state.Drop{Key: k, Token: t},
		"Move": state.Move{Key: k, Generation: v, Window: state.CurrentWindow}, "Remove": state.Remove{Key: k},
		"PutBudget": state.PutBudget{Key: k, Unit: "USD", Window: state.Window{Kind: state.WindowLifetime}},
		"PutScope":  state.PutScope{Key: k, Scope: state.NewScope(1)}, "PutKeyCheck": state.PutKeyCheck{Key: k},
		"Check": state.Check{Key: k, After: 1}, "Bump": state.Bump{Key: k, From: 1, Token: t}, "Raise": state.Raise{Key: k, To: 1},
		"Add": state.Add{Key: k, Amount: 1}, "Spend": state.Spend{Key: k, Amount: 1, Limit: 1}, "Refund": state.Refund{Key: k, Amount: 1},
		"Replace": state.Replace{Key: k, Version: v, State: state.Settled}, "Sweep": state.Sweep{Key: k},
	}
}

// TestKindTable goes through every op on every kind.
func TestKindTable(t *testing.T) {
	t.Parallel()
	const life = "Claim Update Settle Drop Sweep Replace"
	table := map[state.Kind]string{
		state.KindScope: "Bump Check PutScope Raise Replace", state.KindWriter: "Replace", state.KindQuota: "Replace",
		state.KindKeyCheck: "PutKeyCheck Check Remove Replace", state.KindFloor: "Raise Check Replace",
		state.KindCredential: life, state.KindApproval: life, state.KindOperation: life, state.KindChallenge: life, state.KindHold: life, state.KindSpend: life,
		state.KindMarker: "Claim Sweep Replace", state.KindBudget: "PutBudget Move Remove Replace", state.KindCounter: "Add Spend Refund Raise Remove Replace",
	}
	if len(table) != len(state.Kinds()) {
		t.Fatal("the table lacks a kind")
	}
	for kind, list := range table {
		k := key(kind, "x")
		if kind == state.KindScope {
			k = state.ScopeKey("s")
		}
		allowed := map[string]bool{}
		for _, name := range strings.Fields(list) {
			allowed[name] = true
		}
		for name, o := range opsOn(k) {
			ops := []state.Op{o}
			if name == "Move" { // stands behind an anchor
				ops = []state.Op{claim(hold("h")), o}
			}
			err := (&state.Batch{Scope: "s", Ops: ops}).Validate()
			if allowed[name] != (err == nil) {
				t.Errorf("%s on %s: %v, allowed is %t", name, kind, err, allowed[name])
			}
			if err != nil && (!errors.Is(err, state.ErrInvalid) || !strings.Contains(err.Error(), "do not allow it")) {
				t.Errorf("%s on %s: %v", name, kind, err)
			}
		}
	}
}

func TestKindsHaveNamesAndNumbers(t *testing.T) {
	t.Parallel()
	// The numbers are part of every stored key.
	names := []string{"", "scope", "writer", "quota", "keycheck", "floor", "credential", "approval", "permit", "operation", "challenge", "hold", "spend", "budget", "counter"}
	for _, k := range state.Kinds() {
		if !k.Valid() || k.String() != names[k] {
			t.Errorf("kind %d is %q, want %q", k, k, names[k])
		}
	}
	for _, k := range []state.Kind{0, state.Kind(len(names))} {
		if k.Valid() || !strings.HasPrefix(k.String(), "kind(") {
			t.Errorf("kind %d is valid", k)
		}
	}
}
