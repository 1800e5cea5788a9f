package state_test

import (
	"errors"
	"testing"

	"github.com/counterfoil/counterfoil/state"
)

func TestCounters(t *testing.T) {
	t.Parallel()
	k := key(state.KindCounter, "c")
	for name, c := range map[string]struct {
		before, op state.Op
		want       state.Reason
		value      uint64 // what it stands at then; 0: it was not created
	}{
		"add creates":                         {nil, state.Add{Key: k, Amount: 5}, applied, 5},
		"add adds":                            {state.Add{Key: k, Amount: 5}, state.Add{Key: k, Amount: 7}, applied, 12},
		"add up to the ceiling":               {state.Add{Key: k, Amount: 5}, state.Add{Key: k, Amount: state.MaxAmount - 5}, applied, state.MaxAmount},
		"add overflow is loud":                {state.Add{Key: k, Amount: 5}, state.Add{Key: k, Amount: state.MaxAmount - 4}, state.OverLimit, 5},
		"spend exactly the limit":             {state.Add{Key: k, Amount: 5}, state.Spend{Key: k, Amount: 5, Limit: 10}, applied, 10},
		"spend above the limit":               {state.Add{Key: k, Amount: 5}, state.Spend{Key: k, Amount: 6, Limit: 10}, state.OverLimit, 5},
		"spend at a limit of 0":               {nil, state.Spend{Key: k, Amount: 1}, state.OverLimit, 0},
		"spend nothing above a lowered limit": {state.Add{Key: k, Amount: 5}, state.Spend{Key: k, Limit: 1}, applied, 5},
		"spend overflow is loud":              {state.Add{Key: k, Amount: 5}, state.Spend{Key: k, Amount: state.MaxAmount, Limit: state.MaxAmount}, state.OverLimit, 5},
		"refund":                              {state.Add{Key: k, Amount: 5}, state.Refund{Key: k, Amount: 2}, applied, 3},
		"refund stops at 0":                   {state.Add{Key: k, Amount: 5}, state.Refund{Key: k, Amount: 9}, applied, 0},
		"refund never creates":                {nil, state.Refund{Key: k, Amount: 9}, applied, 0},
		"raise creates":                       {nil, state.Raise{Key: k, To: 9}, applied, 9},
		"raise lifts":                         {state.Add{Key: k, Amount: 5}, state.Raise{Key: k, To: 9}, applied, 9},
		"raise never lowers":                  {state.Add{Key: k, Amount: 5}, state.Raise{Key: k, To: 3}, applied, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if c.before != nil {
				r.applies(c.before)
			}
			if c.want == applied {
				out := r.applies(c.op)
				if _, isRefund := c.op.(state.Refund); out.Values[0] != c.value && !(isRefund && c.before == nil) {
					t.Errorf("value %d, want %d", out.Values[0], c.value)
				}
			} else if f := r.refuses(reasons(c.want), c.op).Refusals[0].Figures; f == nil || f.Spent != c.value {
				t.Errorf("figures %+v", f)
			}
			switch rec := r.record(k); {
			case rec == nil && (c.value != 0 || c.before != nil):
				t.Error("there is no counter")
			case rec != nil && rec.Value != c.value:
				t.Errorf("it stands at %d, want %d", rec.Value, c.value)
			case rec != nil && c.value == 0 && c.before == nil:
				t.Error("it was created")
			}
			r.recount()
		})
	}
}

func TestSpendsOnSeveralCountersAreAllOrNone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	spend := func(id string, amount, limit uint64) state.Op {
		return state.Spend{Key: key(state.KindCounter, id), Amount: amount, Limit: limit}
	}
	out := r.applies(spend("a", 5, 100), spend("b", 5, 7))
	if out.Figures[0].Remaining != 95 || out.Figures[1].Remaining != 2 {
		t.Errorf("%+v", out.Figures)
	}
	out = r.refuses(reasons(state.OverLimit, state.OverLimit), spend("a", 5, 100), spend("b", 5, 7), spend("c", 2, 1))
	if out.Refusals[0].Op != 1 || out.Refusals[1].Op != 2 {
		t.Errorf("%+v", out.Refusals)
	}
	if r.record(key(state.KindCounter, "c")) != nil || r.record(key(state.KindCounter, "a")).Value != 5 {
		t.Error("a refused batch left something")
	}
}

func TestFloors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := key(state.KindFloor, "f")
	issuedAt := func(at int64) state.Op { return state.Check{Key: f, After: at} }
	r.applies(issuedAt(1))
	r.applies(state.Raise{Key: f, To: start})
	r.refuses(reasons(state.CheckFailed), issuedAt(start-1))
	if out := r.refuses(reasons(state.CheckFailed), issuedAt(start)); out.Refusals[0].Value != start {
		t.Errorf("floor %d", out.Refusals[0].Value)
	}
	r.applies(issuedAt(start + 1))
	// Never lower.
	version := r.record(f).Version
	if out := r.applies(state.Raise{Key: f, To: start - 5}); out.Values[0] != start || r.record(f).Version != version {
		t.Error("the floor fell, or was written for nothing")
	}
	// A revocation covers issuers whose clock is ahead, to the next full second.
	r.Now = start + 1
	if out := r.applies(state.Raise{Key: f, Ahead: state.Skew}); int64(out.Values[0]) != start+state.Skew+second {
		t.Errorf("floor at %d", int64(out.Values[0])-start)
	}
	r.Now = start + second
	if out := r.applies(state.Raise{Key: f, Ahead: state.Skew}); int64(out.Values[0]) != start+state.Skew+second {
		t.Errorf("floor at %d", int64(out.Values[0])-start)
	}
	r.fails(state.ErrInvalid, state.Raise{Key: f, Ahead: state.MaxAmount})
	r.recount()
}

func TestFloorOfTheScope(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := state.ScopeKey("s")
	if out := r.applies(state.Raise{Key: k, To: start, Ahead: state.Skew}); int64(out.Values[0]) != start+state.Skew {
		t.Errorf("%d", out.Values[0])
	}
	r.refuses(reasons(state.CheckFailed), state.Check{Key: k, After: start + state.Skew})
	r.applies(state.Check{Key: k, After: start + state.Skew + 1})
	r.applies(state.Raise{Key: k, To: start})
	if got := r.record(k).Scope().Floor; got != start+state.Skew {
		t.Errorf("the floor fell to %d", got)
	}
	r.fails(state.ErrInvalid, state.Raise{Key: k, Ahead: state.MaxAmount})
}

func TestEpochIsComparedAndBumped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := state.ScopeKey("s")
	r.applies(state.Check{Key: k, Epoch: 1})
	if out := r.applies(state.Bump{Key: k, From: 1, Token: state.Token{1}}); out.Values[0] != 2 || out.Anchor.Scope().Epoch != 2 {
		t.Errorf("%+v", out)
	}
	// One of two racing callers wins.
	if out := r.refuses(reasons(state.CheckFailed), state.Bump{Key: k, From: 1, Token: state.Token{2}}); out.Refusals[0].Value != 2 {
		t.Errorf("epoch %d", out.Refusals[0].Value)
	}
	r.refuses(reasons(state.CheckFailed), state.Bump{Key: k, From: 3, Token: state.Token{2}})
	r.refuses(reasons(state.CheckFailed), state.Check{Key: k, Epoch: 1})
	r.applies(state.Check{Key: k, Epoch: 2, After: 1})
}

func TestKeyChecks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := key(state.KindKeyCheck, "k")
	r.refuses(reasons(state.CheckFailed), state.Check{Key: k})
	r.applies(state.PutKeyCheck{Key: k, Digest: state.Digest{1}})
	r.refuses(reasons(state.Exists), state.PutKeyCheck{Key: k, Digest: state.Digest{1}})
	r.applies(state.Check{Key: k, Digest: state.Digest{1}})
	r.refuses(reasons(state.CheckFailed), state.Check{Key: k, Digest: state.Digest{2}})
	r.refuses(reasons(state.CheckFailed), state.Check{Key: k})
}

func TestPutScope(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := state.ScopeKey("s")
	rec := r.record(k)
	body := *rec.Scope()
	r.refuses(reasons(state.Changed), state.PutScope{Key: k, Scope: body})
	r.refuses(reasons(state.Changed), state.PutScope{Key: k, IfVersion: state.Version{9}, Scope: body})
	body.Epoch, body.Generation, body.Floor, body.Note = 5, 4, start, "moved"
	r.applies(state.PutScope{Key: k, IfVersion: rec.Version, Scope: body})
	version := r.record(k).Version
	for name, back := range map[string]func(*state.Scope){
		"epoch": func(s *state.Scope) { s.Epoch-- }, "generation": func(s *state.Scope) { s.Generation-- },
		"floor": func(s *state.Scope) { s.Floor-- }, "writers": func(s *state.Scope) { s.Writers-- },
	} {
		b := body
		back(&b)
		t.Log(name)
		r.fails(state.ErrInvalid, state.PutScope{Key: k, IfVersion: version, Scope: b})
	}
	if got := *r.record(k).Scope(); got != body {
		t.Errorf("%+v", got)
	}
	for name, wrong := range map[string]func(*state.Scope){
		"cap": func(s *state.Scope) { s.Caps.OwnerBytes = tooMuch }, "floor": func(s *state.Scope) { s.Floor = -1 }, "writers": func(s *state.Scope) { s.Writers = 257 },
		"quarantine": func(s *state.Scope) { s.Quarantine = string(make([]byte, 4097)) }, "lineage": func(s *state.Scope) { s.Lineage = string(make([]byte, 257)) },
	} {
		b := body
		wrong(&b)
		if err := (&state.Batch{Scope: "s", Ops: []state.Op{state.PutScope{Key: k, Scope: b}}}).Validate(); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestQuarantine goes through what works in a scope that was rolled back, and
// what waits until an operator has reconciled.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	challenge, spend, approval, marker, counter := key(state.KindChallenge, "x"), key(state.KindSpend, "x"), key(state.KindApproval, "x"), key(state.KindMarker, "x"), key(state.KindCounter, "c")
	fresh := func(k state.Key) state.Op {
		k.ID = "fresh"
		return claim(k)
	}
	one := state.Token{1}
	other := func(k state.Key) state.Op { return change(claim(k), func(c *state.Claim) { c.Token = state.Token{2} }) }
	for name, c := range map[string]struct {
		op   state.Op
		want state.Reason // "" for a repetition
	}{
		"replay of an operation":     {other(op("x")), state.Exists},
		"the same begin again":       {claim(op("x")), ""},
		"begin on an absent key":     {fresh(op("x")), state.Recovering},
		"hold":                       {fresh(hold("x")), state.Recovering},
		"spend":                      {fresh(spend), state.Recovering},
		"issue":                      {fresh(challenge), state.Recovering},
		"issue while one is pending": {other(challenge), state.Exists},
		"challenge consume":          {state.Settle{Key: challenge, Token: one}, state.Recovering},
		"issue in another's place":   {state.Update{Key: challenge, Token: one, Expires: start + hour}, state.Recovering},
		"consume of a consumed one":  {state.Settle{Key: key(state.KindChallenge, "done"), Token: one, Given: state.Digest{1}}, state.NotPending},
		"epoch advance":              {state.Bump{Key: state.ScopeKey("s"), From: 1, Token: one}, state.Recovering},
		"counter spend":              {state.Spend{Key: counter, Amount: 1, Limit: 100}, state.Recovering},
		"complete":                   {state.Settle{Key: op("x"), Token: one}, applied},
		"renew":                      {state.Update{Key: op("x"), Token: one, Lease: start + hour}, applied},
		"abort":                      {state.Drop{Key: op("x"), Token: one}, applied},
		"capture":                    {state.Settle{Key: hold("x"), Token: one}, applied},
		"fence":                      {state.Update{Key: hold("x"), Token: one}, applied},
		"void":                       {state.Drop{Key: hold("x"), Token: one}, applied},
		"refund":                     {state.Settle{Key: spend, Token: one}, applied},
		"check of a permit":          {state.Check{Key: state.ScopeKey("s"), After: start}, applied},
		"consume of a permit":        {fresh(marker), applied},
		"close":                      {state.Remove{Key: budget("b")}, applied},
		"counter refund":             {state.Refund{Key: counter, Amount: 1}, applied},
		"revocation":                 {state.Raise{Key: key(state.KindFloor, "f"), To: start}, applied},
		"asking for an approval":     {fresh(approval), state.Recovering},
		"asking for one that waits":  {other(approval), state.Exists},
		"decision of an approval":    {state.Settle{Key: approval, Token: one}, state.Recovering},
		"approval that is decided":   {state.Settle{Key: key(state.KindApproval, "done"), Token: one, Given: state.Digest{1}}, state.NotPending},
		"a new credential":           {fresh(key(state.KindCredential, "x")), applied},
		"sweep":                      {state.Sweep{Key: hold("x")}, applied},
		"definition of a budget":     {putBudget(), applied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for _, k := range []state.Key{op("x"), hold("x"), spend, challenge, approval, key(state.KindChallenge, "done"), key(state.KindApproval, "done")} {
				r.applies(claim(k))
			}
			r.applies(state.Settle{Key: key(state.KindChallenge, "done"), Token: one})
			r.applies(state.Settle{Key: key(state.KindApproval, "done"), Token: one})
			r.applies(state.Add{Key: counter, Amount: 5})
			r.change(func(s *state.Scope) { s.Quarantine = "restored from a backup" })
			switch c.want {
			case "":
				r.repeats(c.op)
			case applied:
				r.applies(c.op)
			default:
				r.refuses(reasons(c.want), c.op)
			}
			if out := r.run(&state.Batch{Scope: "s", Read: []state.Key{op("x")}}); out.Records[0] == nil {
				t.Error("reads do not work")
			}
			// Lifted, it goes on.
			if c.want == state.Recovering {
				r.change(func(s *state.Scope) { s.Quarantine, s.Note = "", "reconciled" })
				r.applies(c.op)
			}
		})
	}
}
