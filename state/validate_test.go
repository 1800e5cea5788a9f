package state_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/state"
)

const tooMuch = state.MaxAmount + 1

// change makes an op and changes one thing in it.
func change[T state.Op](o T, change func(*T)) state.Op {
	change(&o)
	return o
}

func move() state.Move {
	return state.Move{Key: budget("b"), Generation: state.Version{1}, Window: state.CurrentWindow, Give: spent, GiveAmount: 1}
}

func update() state.Update { return state.Update{Key: op("o"), Token: state.Token{1}} }
func settle() state.Settle { return state.Settle{Key: op("o"), Token: state.Token{1}} }
func drop() state.Drop     { return state.Drop{Key: op("o"), Token: state.Token{1}} }
func putBudget() state.PutBudget {
	return state.PutBudget{Key: budget("b"), Unit: "USD", Limit: 1, Window: state.Window{Kind: state.WindowLifetime}}
}
func replace() state.Replace {
	return state.Replace{Key: op("o"), Version: state.Version{1}, State: state.Settled}
}

var (
	spent  = state.Bucket{Kind: state.BucketSpent}
	fenced = state.Bucket{Kind: state.BucketFenced}
)

func held(until int64) state.Bucket { return state.Bucket{Kind: state.BucketHeld, Until: until} }

// foreign is an op of somebody else's making.
type foreign struct{ state.Check }

func TestOpsThatAreInvalid(t *testing.T) {
	t.Parallel()
	big := make([]byte, state.MaxBodyBytes+1)
	long := strings.Repeat("x", 257)
	marker := claim(key(state.KindMarker, "m"))
	for name, c := range map[string]struct {
		op   state.Op
		says string
	}{
		"nil":                                  {nil, "not one of"},
		"a pointer to a Check":                 {&state.Check{Key: state.ScopeKey("s"), After: 1}, "not one of"},
		"a nil pointer to a Claim":             {(*state.Claim)(nil), "not one of"},
		"another package's op":                 {foreign{state.Check{Key: state.ScopeKey("s")}}, "not one of"},
		"Claim without a token":                {change(claim(op("o")), func(o *state.Claim) { o.Token = state.Token{} }), "token"},
		"Claim with an empty id":               {claim(op("")), "id is empty"},
		"Claim with an id that is too long":    {claim(op(strings.Repeat("x", 1025))), "1025 bytes"},
		"Claim with an owner that is too long": {change(claim(op("o")), func(o *state.Claim) { o.Owner = long }), "owner"},
		"Claim with a control character":       {change(claim(op("o")), func(o *state.Claim) { o.Owner = "a\nb" }), "owner"},
		"Claim of invalid UTF-8":               {change(claim(op("o")), func(o *state.Claim) { o.Owner = "\xff" }), "owner"},
		"Claim void":                           {change(claim(op("o")), func(o *state.Claim) { o.State = state.Void }), "pending or settled"},
		"Claim without a state":                {change(claim(op("o")), func(o *state.Claim) { o.State = 0 }), "pending or settled"},
		"Claim settled with a lease":           {change(marker, func(o *state.Claim) { o.Lease = start }), "lease"},
		"Claim of a negative expiry":           {change(marker, func(o *state.Claim) { o.Expires = -1 }), "time"},
		"Claim of an expiry beyond the range":  {change(marker, func(o *state.Claim) { o.Expires = tooMuch }), "time"},
		"Claim of a negative lease":            {change(claim(op("o")), func(o *state.Claim) { o.Lease = -1 }), "time"},
		"Claim with a huge body":               {change(claim(op("o")), func(o *state.Claim) { o.Body = big }), "too large"},
		"a permit without an expiry":           {change(marker, func(o *state.Claim) { o.Expires = 0 }), "expiry"},
		"a challenge without an expiry":        {change(claim(key(state.KindChallenge, "c")), func(o *state.Claim) { o.Expires = 0 }), "expiry"},
		"a pending operation with an expiry":   {change(claim(op("o")), func(o *state.Claim) { o.Expires = start + day }), "never expires"},
		"Update without a token":               {change(update(), func(o *state.Update) { o.Token = state.Token{} }), "token"},
		"Update of a negative lease":           {change(update(), func(o *state.Update) { o.Lease = -1 }), "time"},
		"Update of a negative expiry":          {change(update(), func(o *state.Update) { o.Expires = -1 }), "time"},
		"Update with a huge body":              {change(update(), func(o *state.Update) { o.Body = big }), "too large"},
		"Update that lets an operation expire": {change(update(), func(o *state.Update) { o.Expires = start + day }), "never expires"},
		"Update of a challenge without expiry": {change(update(), func(o *state.Update) { o.Key = key(state.KindChallenge, "c") }), "expiry"},
		"Settle without a token":               {change(settle(), func(o *state.Settle) { o.Token = state.Token{} }), "token"},
		"Settle of a negative retention":       {change(settle(), func(o *state.Settle) { o.Retain = -1 }), "time"},
		"Settle of a negative expiry":          {change(settle(), func(o *state.Settle) { o.Expires = -1 }), "time"},
		"Settle with a huge body":              {change(settle(), func(o *state.Settle) { o.Body = big }), "too large"},
		"Settle with a short body too long":    {change(settle(), func(o *state.Settle) { o.Short = make([]byte, state.FreeBodyBytes+1) }), "short"},
		"Settle retained past its end":         {change(settle(), func(o *state.Settle) { o.Retain, o.Expires = start+2, start+1 }), "retained longer"},
		"Drop without a token":                 {change(drop(), func(o *state.Drop) { o.Token = state.Token{} }), "token"},
		"Drop with a long why":                 {change(drop(), func(o *state.Drop) { o.Why = make([]byte, 8193) }), "too large"},
		"Move of too much":                     {change(move(), func(o *state.Move) { o.GiveAmount = tooMuch }), "2^53"},
		"Move taking too much":                 {change(move(), func(o *state.Move) { o.Take, o.TakeAmount, o.Window = spent, tooMuch, 0 }), "2^53"},
		"Move with too much on top":            {change(move(), func(o *state.Move) { o.Extra = tooMuch }), "2^53"},
		"Move to a bucket that does not exist": {change(move(), func(o *state.Move) { o.Give.Kind = 4 }), "bucket"},
		"Move to held without an end":          {change(move(), func(o *state.Move) { o.Give = held(0) }), "bucket"},
		"Move to held with a negative end":     {change(move(), func(o *state.Move) { o.Give = held(-5) }), "bucket"},
		"Move to spent with an end":            {change(move(), func(o *state.Move) { o.Give.Until = start }), "bucket"},
		"Move of an amount to nowhere":         {change(move(), func(o *state.Move) { o.Give = state.Bucket{} }), "needs a bucket"},
		"Move of an amount from nowhere":       {change(move(), func(o *state.Move) { o.TakeAmount = 1 }), "needs a bucket"},
		"Move without a generation":            {change(move(), func(o *state.Move) { o.Generation = state.Version{} }), "generation"},
		"Move in a negative window":            {change(move(), func(o *state.Move) { o.Window = -1 }), "time"},
		"Move taking from whichever window":    {change(move(), func(o *state.Move) { o.Take, o.TakeAmount = spent, 1 }), "window"},
		"Move that adds and may be skipped":    {change(move(), func(o *state.Move) { o.IfGone = state.GoneSkip }), "skipped"},
		"Move that holds and may be skipped": {change(move(), func(o *state.Move) {
			o.Take, o.TakeAmount, o.Give, o.Window, o.IfClosed = held(start+1), 1, held(start+2), 0, state.GoneSkip
		}), "skipped"},
		"Move with an unknown rule":              {change(move(), func(o *state.Move) { o.IfGone, o.GiveAmount = 2, 0 }), "skipped"},
		"Remove with a counter as ancestor":      {state.Remove{Key: budget("b"), Ancestors: []state.Ancestor{{Key: key(state.KindCounter, "c")}}}, "ancestor"},
		"PutBudget with an empty segment":        {change(putBudget(), func(o *state.PutBudget) { o.Key.ID = "a//b" }), "segment"},
		"PutBudget too many segments":            {change(putBudget(), func(o *state.PutBudget) { o.Key.ID = "a/b/c/d/e/f/g/h/i" }), "segments"},
		"PutBudget under a name that is not one": {change(putBudget(), func(o *state.PutBudget) { o.Parent = ".." }), "segment"},
		"PutBudget without a unit":               {change(putBudget(), func(o *state.PutBudget) { o.Unit = "" }), "unit"},
		"PutBudget with a long unit":             {change(putBudget(), func(o *state.PutBudget) { o.Unit = strings.Repeat("x", 65) }), "unit"},
		"PutBudget with too high a limit":        {change(putBudget(), func(o *state.PutBudget) { o.Limit = tooMuch }), "2^53"},
		"PutBudget unlimited with a limit":       {change(putBudget(), func(o *state.PutBudget) { o.Unlimited = true }), "unlimited"},
		"PutBudget its own parent":               {change(putBudget(), func(o *state.PutBudget) { o.Parent = "b" }), "parent"},
		"PutBudget without a window":             {change(putBudget(), func(o *state.PutBudget) { o.Window = state.Window{} }), "window"},
		"PutScope without an epoch":              {state.PutScope{Key: state.ScopeKey("s"), Scope: state.Scope{Generation: 1}}, "epoch"},
		"PutScope without a generation":          {state.PutScope{Key: state.ScopeKey("s"), Scope: state.Scope{Epoch: 1}}, "generation"},
		"PutScope of a second scope record":      {state.PutScope{Key: key(state.KindScope, "x"), Scope: state.NewScope(1)}, "ScopeKey"},
		"Check of a floor against no time":       {state.Check{Key: key(state.KindFloor, "f")}, "floor"},
		"Check against a negative time":          {state.Check{Key: state.ScopeKey("s"), After: -1}, "time"},
		"Check against an epoch out of range":    {state.Check{Key: state.ScopeKey("s"), Epoch: tooMuch}, "2^53"},
		"Bump without a token":                   {state.Bump{Key: state.ScopeKey("s"), From: 1}, "token"},
		"Bump from no epoch":                     {state.Bump{Key: state.ScopeKey("s"), Token: state.Token{1}}, "2^53"},
		"Bump from the last epoch":               {state.Bump{Key: state.ScopeKey("s"), Token: state.Token{1}, From: state.MaxAmount}, "2^53"},
		"Bump of another record":                 {state.Bump{Key: key(state.KindScope, "x"), Token: state.Token{1}, From: 1}, "ScopeKey"},
		"Raise too high":                         {state.Raise{Key: key(state.KindCounter, "c"), To: tooMuch}, "2^53"},
		"Raise a counter ahead of time":          {state.Raise{Key: key(state.KindCounter, "c"), Ahead: 1}, "counter"},
		"Raise a negative time ahead":            {state.Raise{Key: key(state.KindFloor, "f"), Ahead: -1}, "time"},
		"Add too much":                           {state.Add{Key: key(state.KindCounter, "c"), Amount: tooMuch}, "2^53"},
		"Spend too much":                         {state.Spend{Key: key(state.KindCounter, "c"), Amount: tooMuch}, "2^53"},
		"Spend with too high a limit":            {state.Spend{Key: key(state.KindCounter, "c"), Limit: tooMuch}, "2^53"},
		"Refund too much":                        {state.Refund{Key: key(state.KindCounter, "c"), Amount: tooMuch}, "2^53"},
		"Refuse without a reason":                {state.Refuse{}, "reason"},
		"Replace with pending":                   {change(replace(), func(o *state.Replace) { o.State = state.Pending }), "settled"},
		"Replace a budget with void":             {change(replace(), func(o *state.Replace) { o.Key, o.State = budget("b"), state.Void }), "settled"},
		"Replace with a huge body":               {change(replace(), func(o *state.Replace) { o.Body = big }), "too large"},
		"Replace of a negative retention":        {change(replace(), func(o *state.Replace) { o.Retain = -1 }), "time"},
		"Replace retained past its end":          {change(replace(), func(o *state.Replace) { o.Retain, o.Expires = start+2, start+1 }), "retained longer"},
		"Replace with a long owner":              {change(replace(), func(o *state.Replace) { o.Owner = long }), "owner"},
		"an unknown kind":                        {claim(key(0, "x")), "kind"},
		"another scope":                          {claim(state.Key{Scope: "t", Kind: state.KindOperation, ID: "x"}), "another scope"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ops := []state.Op{c.op}
			if _, ok := c.op.(state.Move); ok {
				ops = []state.Op{claim(hold("h")), c.op}
			}
			r := newRig(t)
			before := r.Open()
			_, err := r.Do(&state.Batch{Scope: "s", Ops: ops}, 0)
			if !errors.Is(err, state.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error is %v, want one about %q", err, c.says)
			}
			if d := state.Decide(state.NewView(), &state.Batch{Scope: "s", Ops: ops}, state.Context{Now: start}); !errors.Is(d.Err, state.ErrInvalid) || d.Need != nil {
				t.Errorf("invalid before anything is read: got %v, needs %d keys", d.Err, len(d.Need))
			}
			if len(r.Open()) != len(before) {
				t.Error("something was written")
			}
		})
	}
}

func TestBatchesThatAreInvalid(t *testing.T) {
	t.Parallel()
	counter := func(n int) state.Key { return key(state.KindCounter, strings.Repeat("c", n+1)) }
	adds := func(n int) (ops []state.Op) {
		for i := range n {
			ops = append(ops, state.Add{Key: counter(i), Amount: 1})
		}
		return ops
	}
	refuses := func(n int) (ops []state.Op) {
		for range n {
			ops = append(ops, state.Refuse{Reason: state.Expired})
		}
		return ops
	}
	reads := func(n int) (keys []state.Key) {
		for i := range n {
			keys = append(keys, counter(i))
		}
		return keys
	}
	extra := change(move(), func(o *state.Move) { o.Extra = 1 })
	expiring := change(claim(hold("h")), func(o *state.Claim) { o.Expires = start + minute })
	for name, c := range map[string]struct {
		batch state.Batch
		says  string
	}{
		"empty":                          {state.Batch{}, "empty"},
		"a scope without a name":         {state.Batch{Scope: "-", Ops: adds(1)}, "another scope"},
		"the reserved prefix":            {state.Batch{Scope: "_x", Ops: adds(1)}, "reserved"},
		"two ops on one key":             {state.Batch{Ops: append(adds(1), state.Spend{Key: counter(0), Limit: 1})}, "earlier op"},
		"the same op twice":              {state.Batch{Ops: append(adds(1), adds(1)...)}, "earlier op"},
		"three Moves on one budget":      {state.Batch{Ops: []state.Op{claim(hold("h")), move(), move(), move()}}, "earlier op"},
		"two Moves, one with an Extra":   {state.Batch{Ops: []state.Op{claim(hold("h")), move(), extra}}, "earlier op"},
		"two Moves, first with an Extra": {state.Batch{Ops: []state.Op{claim(hold("h")), extra, move()}}, "earlier op"},
		"65 keys":                        {state.Batch{Ops: adds(65)}, "64 keys"},
		"65 keys, read and written":      {state.Batch{Ops: adds(60), Read: reads(65)}, "64 keys"},
		"129 ops":                        {state.Batch{Ops: refuses(129)}, "128 ops"},
		"a Move without an anchor":       {state.Batch{Ops: []state.Op{move()}}, "anchor"},
		"a Move behind a Check":          {state.Batch{Ops: []state.Op{state.Check{Key: state.ScopeKey("s")}, move()}}, "anchor"},
		"a Remove with company":          {state.Batch{Ops: append(adds(1), state.Remove{Key: budget("b")})}, "alone"},
		"two Removes":                    {state.Batch{Ops: []state.Op{state.Remove{Key: budget("b")}, state.Remove{Key: budget("c")}}}, "alone"},
		"to keep without an anchor":      {state.Batch{Ops: adds(1), Keep: true}, "keep"},
		"to keep in a void record":       {state.Batch{Ops: []state.Op{drop()}, Keep: true}, "keep"},
		"a negative NotAfter":            {state.Batch{Ops: adds(1), NotAfter: -1}, "NotAfter"},
		"NotAfter later than a claim":    {state.Batch{Ops: []state.Op{expiring}, NotAfter: start + minute + 1}, "NotAfter"},
		"to read from another scope":     {state.Batch{Read: []state.Key{state.ScopeKey("t")}}, "another scope"},
		"to read what is no key":         {state.Batch{Read: []state.Key{key(99, "x")}}, "kind"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.batch.Scope == "" {
				c.batch.Scope = "s"
			}
			if err := c.batch.Validate(); !errors.Is(err, state.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error is %v, want one about %q", err, c.says)
			}
		})
	}
	for name, b := range map[string]state.Batch{
		"64 keys":                    {Ops: adds(64), Read: reads(64)},
		"two Moves on one budget":    {Ops: []state.Op{claim(hold("h")), move(), move()}},
		"NotAfter as late as it may": {Ops: []state.Op{expiring}, NotAfter: start + minute},
		"only to read":               {Read: reads(1)},
		"many refusals":              {Ops: refuses(128)},
	} {
		b.Scope = "s"
		if err := b.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"a": true, "é": true, strings.Repeat("x", 256): true, "with space": true,
		"": false, strings.Repeat("x", 257): false, "a\x00": false, "a\u0085": false, "\x7f": false, "\xc3": false,
	} {
		if err := state.CheckName(name); (err == nil) != ok {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for name, ok := range map[string]bool{
		"a": true, "a/b": true, "a/b/c/d/e/f/g/h": true, "A-Z_~.0": true, strings.Repeat("x", 64): true,
		"": false, "/": false, "a/": false, "/a": false, ".": false, "a/..": false, "a b": false, "é": false, strings.Repeat("x", 65): false, "a/b/c/d/e/f/g/h/i": false,
	} {
		if err := state.CheckBudgetName(name); (err == nil) != ok {
			t.Errorf("budget %q: %v", name, err)
		}
	}
}

func TestErrorsNameNoWholeKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(claim(op("very-secret-id")))
	r.Damage(op("very-secret-id"))
	_, err := r.Do(&state.Batch{Scope: "s", Read: []state.Key{op("very-secret-id")}}, 0)
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "operation") {
		t.Errorf("the error is %v", err)
	}
}
