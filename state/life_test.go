package state_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/state/statetest"
)

// situations are the records that an op of a holder (token 1) can meet.
var situations = map[string]func(r *rig, k state.Key){
	"absent":           func(*rig, state.Key) {},
	"pending":          func(r *rig, k state.Key) { r.applies(claim(k)) },
	"of another":       func(r *rig, k state.Key) { c := claim(k); c.Token = state.Token{2}; r.applies(c) },
	"lease alive":      func(r *rig, k state.Key) { c := claim(k); c.Lease = start + minute; r.applies(c) },
	"lease over":       func(r *rig, k state.Key) { c := claim(k); c.Lease = start + minute; r.applies(c); r.Now += minute },
	"pending, over":    func(r *rig, k state.Key) { expiring(r, k); r.Now += minute },
	"of another, over": func(r *rig, k state.Key) { expiring(r, k, 2); r.Now += minute },
	"settled":          func(r *rig, k state.Key) { r.applies(claim(k)); r.applies(state.Settle{Key: k, Token: state.Token{1}}) },
	"settled by another": func(r *rig, k state.Key) {
		r.applies(claim(k))
		r.applies(state.Settle{Key: k, Token: state.Token{1}, NewToken: state.Token{2}})
	},
	"settled, over": func(r *rig, k state.Key) {
		r.applies(claim(k))
		r.applies(state.Settle{Key: k, Token: state.Token{1}, Expires: start + minute})
		r.Now += minute
	},
	"retention over":       func(r *rig, k state.Key) { forgotten(r, k) },
	"swept to a tombstone": func(r *rig, k state.Key) { forgotten(r, k); r.applies(state.Sweep{Key: k}) },
	"void":                 func(r *rig, k state.Key) { r.applies(claim(k)); r.applies(state.Drop{Key: k, Token: state.Token{1}}) },
	"void by another": func(r *rig, k state.Key) {
		r.applies(claim(k))
		r.applies(state.Drop{Key: k, Token: state.Token{1}, NewToken: state.Token{2}})
	},
	"void, over": func(r *rig, k state.Key) {
		r.applies(claim(k))
		r.applies(state.Drop{Key: k, Token: state.Token{1}})
		r.Now += state.VoidKeep
	},
}

func expiring(r *rig, k state.Key, token ...byte) {
	c := claim(k)
	c.Expires = start + minute
	for _, b := range token {
		c.Token = state.Token{b}
	}
	r.applies(c)
}

func forgotten(r *rig, k state.Key) {
	r.applies(claim(k))
	r.applies(state.Settle{Key: k, Token: state.Token{1}, Retain: start + minute, Expires: start + day, Body: []byte("receipt")})
	r.Now += minute
}

const applied = state.Reason("applied")

// TestOpsOfAHolder: what Update, Settle and Drop say in every situation. They
// stand behind another op, so that nothing is taken for a repetition.
func TestOpsOfAHolder(t *testing.T) {
	t.Parallel()
	table := map[string]state.Reason{
		"absent": state.Absent, "pending": applied, "of another": state.NotHolder, "lease alive": applied, "lease over": applied,
		"pending, over": state.Expired, "of another, over": state.NotHolder, "settled": state.NotPending, "settled by another": state.NotHolder,
		"settled, over": state.Expired, "retention over": state.NotHolder, "swept to a tombstone": state.NotHolder,
		"void": state.NotPending, "void by another": state.NotHolder, "void, over": state.Absent,
	}
	asked := map[string]map[string]state.Reason{ // what differs if a lease is asked for
		"Update if alive": {"pending": state.LeaseOver, "lease over": state.LeaseOver},
		"Settle if over":  {"lease alive": state.LeaseAlive},
		"Drop if over":    {"lease alive": state.LeaseAlive},
	}
	k := hold("x")
	ops := map[string]state.Op{
		"Update":          state.Update{Key: k, Token: state.Token{1}},
		"Update if alive": state.Update{Key: k, Token: state.Token{1}, IfLeaseAlive: true},
		"Settle":          state.Settle{Key: k, Token: state.Token{1}},
		"Settle if over":  state.Settle{Key: k, Token: state.Token{1}, IfLeaseOver: true},
		"Drop":            state.Drop{Key: k, Token: state.Token{1}},
		"Drop if over":    state.Drop{Key: k, Token: state.Token{1}, IfLeaseOver: true},
	}
	for name, o := range ops {
		for situation, arise := range situations {
			want := table[situation]
			if r, ok := asked[name][situation]; ok {
				want = r
			}
			t.Run(name+"/"+situation, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				arise(r, k)
				first := state.Check{Key: state.ScopeKey("s")}
				if want == applied {
					r.applies(first, o)
					r.recount()
					return
				}
				out := r.refuses(reasons(want), first, o)
				refusal, _ := out.Refused(1)
				if (refusal.Record == nil) != (want == state.Absent) {
					t.Errorf("the refusal shows %v", refusal.Record)
				}
				if refusal.Record != nil && len(refusal.Record.Body) > 0 && !refusal.Record.Retained(r.Now) && refusal.Record.State == state.Settled {
					t.Error("a body past its retention is shown")
				}
			})
		}
	}
}

// TestClaim: what a Claim of somebody else says in every situation.
func TestClaim(t *testing.T) {
	t.Parallel()
	for situation, arise := range situations {
		want := applied
		switch situation {
		case "pending", "of another", "lease alive", "lease over", "settled", "settled by another", "retention over", "swept to a tombstone":
			want = state.Exists
		}
		t.Run(situation, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			k := hold("x")
			arise(r, k)
			c := claim(k)
			c.Token, c.Owner = state.Token{9}, "bob"
			if want != applied {
				out := r.refuses(reasons(want), c)
				if out.Refusals[0].Record == nil {
					t.Error("the record in the way is not shown")
				}
				return
			}
			out := r.applies(c)
			got := r.record(k)
			if got.State != state.Pending || got.Token != c.Token || got.Owner != "bob" || got.Digest != c.Digest || got.Created != r.Now || string(got.Body) != "body" {
				t.Errorf("the record is %+v", got)
			}
			if out.Anchor == nil || out.Anchor.Token != c.Token {
				t.Error("the outcome does not hold the record")
			}
			r.recount()
		})
	}
}

// TestOwnTokenOutsideTheAnchorIsExists: only the first op decides repetition.
func TestOwnTokenOutsideTheAnchorIsExists(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(claim(hold("a")))
	r.refuses(reasons(state.Exists), claim(op("new")), claim(hold("a")))
	r.refuses(reasons(state.Exists), state.Check{Key: state.ScopeKey("s")}, claim(hold("a")))
	if r.record(op("new")) != nil {
		t.Error("the first op took effect")
	}
}

func TestRepetition(t *testing.T) {
	t.Parallel()
	one, two := state.Token{1}, state.Token{2}
	given := state.Digest{5}
	claimed := claim(op("x"))
	settle := state.Settle{Key: op("x"), Token: one, Given: given, Body: []byte("receipt")}
	resolve := state.Settle{Key: op("x"), Token: one, NewToken: two, Given: given}
	drop := state.Drop{Key: op("x"), Token: one}
	renew := state.Update{Key: op("x"), Token: one, Lease: start + hour, Body: []byte("b")}
	pass := state.Update{Key: op("x"), Token: one, NewToken: two, Given: given, Lease: start + hour}
	bump := state.Bump{Key: state.ScopeKey("s"), From: 1, Token: one}
	for name, c := range map[string]struct {
		before []state.Op
		op     state.Op
		want   state.Reason // "" for a repetition
	}{
		"claim, the same":                           {[]state.Op{claimed}, claimed, ""},
		"claim, whatever else it says":              {[]state.Op{claimed}, change(claimed, func(o *state.Claim) { o.Body, o.Owner, o.Lease = nil, "bob", start }), ""},
		"claim with another digest":                 {[]state.Op{claimed}, change(claimed, func(o *state.Claim) { o.Digest = given }), state.Exists},
		"claim with another token":                  {[]state.Op{claimed}, change(claimed, func(o *state.Claim) { o.Token = two }), state.Exists},
		"claim, finished by now":                    {[]state.Op{claimed, settle}, claimed, ""},
		"claim, renewed by now":                     {[]state.Op{claimed, renew}, claimed, ""},
		"claim, dropped: never revived":             {[]state.Op{claimed, drop}, claimed, state.Aborted},
		"claim, passed on to another token":         {[]state.Op{claimed, pass}, claimed, state.Exists},
		"claim, resolved by another token":          {[]state.Op{claimed, resolve}, claimed, state.Exists},
		"settle, the same":                          {[]state.Op{claimed, settle}, settle, ""},
		"settle, other retention and limits":        {[]state.Op{claimed, settle}, change(settle, func(o *state.Settle) { o.Retain, o.Expires = start+hour, start+day }), ""},
		"settle of something else":                  {[]state.Op{claimed, settle}, change(settle, func(o *state.Settle) { o.Given = state.Digest{6} }), state.NotPending},
		"settle that gave the token up":             {[]state.Op{claimed, resolve}, resolve, ""},
		"settle by the holder after another's":      {[]state.Op{claimed, resolve}, settle, state.NotHolder},
		"settle of what was dropped":                {[]state.Op{claimed, drop}, settle, state.NotPending},
		"drop, the same":                            {[]state.Op{claimed, drop}, drop, ""},
		"drop, for another reason":                  {[]state.Op{claimed, drop}, change(drop, func(o *state.Drop) { o.Why = []byte("other") }), ""},
		"drop of what was settled":                  {[]state.Op{claimed, settle}, drop, state.NotPending},
		"drop by the holder after another's":        {[]state.Op{claimed, change(drop, func(o *state.Drop) { o.NewToken = two })}, drop, state.NotHolder},
		"update, exactly these values":              {[]state.Op{claimed, renew}, renew, ""},
		"update, another lease: applied":            {[]state.Op{claimed, renew}, change(renew, func(o *state.Update) { o.Lease++ }), applied},
		"update, another body: applied":             {[]state.Op{claimed, renew}, change(renew, func(o *state.Update) { o.Body = nil }), applied},
		"update that gave the token up":             {[]state.Op{claimed, pass}, pass, ""},
		"update that gave the token up, other give": {[]state.Op{claimed, pass}, change(pass, func(o *state.Update) { o.Given = state.Digest{} }), state.NotHolder},
		"update after it was settled":               {[]state.Op{claimed, renew, settle}, renew, state.NotPending},
		"bump, the same":                            {[]state.Op{bump}, bump, ""},
		"bump, by another":                          {[]state.Op{bump}, change(bump, func(o *state.Bump) { o.Token = two }), state.CheckFailed},
		"bump, and bumped again since":              {[]state.Op{bump, change(bump, func(o *state.Bump) { o.From, o.Token = 2, two })}, bump, state.CheckFailed},
		"bump, the scope was changed since":         {[]state.Op{bump, state.Raise{Key: state.ScopeKey("s"), To: start}}, bump, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for _, o := range c.before {
				r.applies(o)
			}
			// Whatever comes behind the anchor is not looked at in a repetition.
			more := []state.Op{c.op, state.Refuse{Reason: "malformed"}, state.Check{Key: key(state.KindFloor, "f"), After: 1}, state.Settle{Key: op("gone"), Token: one}}
			switch c.want {
			case "":
				r.repeats(more...)
			case applied:
				r.applies(c.op)
			default:
				if c.want == state.Aborted {
					r.refuses(reasons(c.want), more...)
				}
				r.refuses(reasons(c.want), c.op)
			}
		})
	}
}

// TestRepetitionAnswersFromThePresent: the anchor is shown as it is by now, and
// so is what the batch asked to read.
func TestRepetitionAnswersFromThePresent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(claim(op("x")))
	r.applies(state.Settle{Key: op("x"), Token: state.Token{1}, Body: []byte("receipt"), Retain: start + hour, Expires: start + day})
	b := &state.Batch{Scope: "s", Ops: []state.Op{claim(op("x"))}, Read: []state.Key{op("x"), op("y")}, NotAfter: start + minute}
	r.Now += 2 * minute // even late
	out := r.run(b)
	if !out.Repeated || string(out.Anchor.Body) != "receipt" || len(out.Records) != 2 || string(out.Records[0].Body) != "receipt" || out.Records[1] != nil {
		t.Fatalf("%+v", out)
	}
}

// TestOwnClaimThatIsOverIsNotRevived: a late copy of a message finds its own
// record, whose time is over, and does not begin anew.
func TestOwnClaimThatIsOverIsNotRevived(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	expiring(r, hold("x"))
	r.Now += minute
	r.refuses(reasons(state.Expired), change(claim(hold("x")), func(o *state.Claim) { o.Expires = r.Now + hour }))
	challenge := claim(key(state.KindChallenge, "job"))
	r.applies(challenge)
	r.applies(state.Bump{Key: state.ScopeKey("s"), From: 1, Token: state.Token{1}})
	r.refuses(reasons(state.Expired), challenge)
	// Another token replaces it.
	r.applies(change(challenge, func(o *state.Claim) { o.Token = state.Token{2} }))
}

// TestRetentionIsJudgedAtReadTime: past its retention a receipt is the
// tombstone that a sweeper would leave, in every answer, swept or not.
func TestRetentionIsJudgedAtReadTime(t *testing.T) {
	t.Parallel()
	answers := func(swept bool) []statetest.Answer {
		r := newRig(t)
		forgotten(r, op("x"))
		if swept {
			r.applies(state.Sweep{Key: op("x")})
		}
		var all []statetest.Answer
		for _, b := range []*state.Batch{
			{Scope: "s", Read: []state.Key{op("x")}},
			{Scope: "s", Ops: []state.Op{claim(op("x"))}},
			{Scope: "s", Ops: []state.Op{state.Settle{Key: op("x"), Token: state.Token{1}}}},
			{Scope: "s", Ops: []state.Op{state.Check{Key: state.ScopeKey("s")}, state.Drop{Key: op("x"), Token: state.Token{1}}}},
		} {
			all = append(all, statetest.AnswerOf(r.run(b), nil))
		}
		return all
	}
	before, after := answers(false), answers(true)
	for i := range before {
		if diff := statetest.Diff(before[i], after[i]); diff != "" {
			t.Errorf("batch %d: %s", i, diff)
		}
	}
	r := newRig(t)
	forgotten(r, op("x"))
	r.Now--
	if out := r.run(&state.Batch{Scope: "s", Read: []state.Key{op("x")}}); string(out.Records[0].Body) != "receipt" {
		t.Error("the receipt is gone a millisecond too early")
	}
}

// TestExpiredIsDecidedAtReadTime: a record lives until the millisecond before
// its Expires, for every op alike, by the batch's time alone.
func TestExpiredIsDecidedAtReadTime(t *testing.T) {
	t.Parallel()
	mine := func(o state.Op) []state.Op { return []state.Op{state.Check{Key: state.ScopeKey("s")}, o} }
	for name, c := range map[string]struct {
		ops          []state.Op
		before, from state.Reason
	}{
		"Claim":  {[]state.Op{change(claim(hold("x")), func(o *state.Claim) { o.Token = state.Token{2} })}, state.Exists, applied},
		"Update": {mine(state.Update{Key: hold("x"), Token: state.Token{1}}), applied, state.Expired},
		"Settle": {mine(state.Settle{Key: hold("x"), Token: state.Token{1}}), applied, state.Expired},
		"Drop":   {mine(state.Drop{Key: hold("x"), Token: state.Token{1}}), applied, state.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for late, want := range []state.Reason{c.before, c.from} {
				r := newRig(t)
				expiring(r, hold("x"))
				r.Now = start + minute - 1 + int64(late)
				if want == applied {
					r.applies(c.ops...)
				} else {
					r.refuses(reasons(want), c.ops...)
				}
			}
		})
	}
}

// TestNothingIsLeftOverFromTheStart: an op that would leave a record whose time
// is over already is refused.
func TestNothingIsLeftOverFromTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(claim(hold("x")))
	for _, o := range []state.Op{
		change(claim(hold("y")), func(o *state.Claim) { o.Expires = start }),
		state.Update{Key: hold("x"), Token: state.Token{1}, Expires: start},
		state.Settle{Key: hold("x"), Token: state.Token{1}, Expires: start},
	} {
		r.refuses(reasons(state.Expired), o)
	}
}

func TestStaleBatchIsRefused(t *testing.T) {
	t.Parallel()
	for late, want := range map[int64][]state.Reason{0: nil, 1: {state.Stale}} {
		r := newRig(t)
		b := &state.Batch{Scope: "s", Ops: []state.Op{claim(op("x"))}, NotAfter: start}
		r.Now += late
		if want != nil {
			out := r.refusesBatch(want, b)
			if out.Refusals[0].Op != -1 {
				t.Errorf("op %d is stale", out.Refusals[0].Op)
			}
		} else if !r.run(b).Applied {
			t.Error("refused at its last moment")
		}
	}
}

// TestAllRefusalsAreListed: in the order of the ops, and nothing is written.
func TestAllRefusalsAreListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(claim(hold("taken")))
	r.applies(state.Raise{Key: key(state.KindFloor, "f"), To: start})
	r.change(func(s *state.Scope) { s.Caps.OwnerLive = 1; s.Caps.Live = 1 })
	out := r.refusesBatch(
		reasons(state.Stale, state.Exists, state.Absent, state.CheckFailed, state.OverLimit, "malformed", state.Expired, state.Full, state.OwnerFull),
		&state.Batch{Scope: "s", NotAfter: start - 1, Ops: []state.Op{
			change(claim(hold("taken")), func(o *state.Claim) { o.Token = state.Token{2} }),
			state.Settle{Key: op("gone"), Token: state.Token{1}},
			state.Check{Key: key(state.KindFloor, "f"), After: start},
			state.Spend{Key: key(state.KindCounter, "c"), Amount: 5, Limit: 4},
			state.Refuse{Reason: "malformed"},
			change(claim(key(state.KindSpend, "late")), func(o *state.Claim) { o.Expires = start }),
			claim(key(state.KindApproval, "one")),
			claim(key(state.KindApproval, "two")),
		}},
	)
	for i, want := range []int{-1, 0, 1, 2, 3, 4, 5, 6, 6} {
		if out.Refusals[i].Op != want {
			t.Errorf("refusal %d is of op %d, want %d", i, out.Refusals[i].Op, want)
		}
	}
	if f := out.Refusals[4].Figures; f == nil || f.Amount != 5 || f.Remaining != 4 {
		t.Errorf("over_limit comes with %+v", f)
	}
	if out.Refusals[3].Value != start {
		t.Errorf("check_failed comes with %d", out.Refusals[3].Value)
	}
	if r, ok := out.Because(state.Absent); !ok || r.Op != 1 {
		t.Errorf("absent is %+v", r)
	}
	if slices.ContainsFunc(out.Figures, func(f *state.Figures) bool { return f != nil }) {
		t.Error("a refused batch shows figures that nothing stands at")
	}
}

// TestRefusalWritesNothing: neither what did hold nor a zero counter.
func TestRefusalWritesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	good := &state.Batch{Scope: "s", Ops: []state.Op{claim(op("x")), state.Add{Key: key(state.KindCounter, "c"), Amount: 1}}}
	bad := &state.Batch{Scope: "s", Ops: append(slices.Clone(good.Ops), state.Refuse{Reason: "malformed"})}
	c := state.Context{Now: start, Version: state.Version{1}}
	if d := state.Decide(viewOf(r, good), good, c); !d.Outcome.Applied || len(d.Writes) == 0 {
		t.Fatalf("without the refusal: %+v", d)
	}
	if d := state.Decide(viewOf(r, bad), bad, c); d.Outcome.Applied || len(d.Writes) > 0 {
		t.Fatalf("with it %d records are written", len(d.Writes))
	}
	r.refuses(reasons("malformed"), bad.Ops...)
}

// TestUnreadableRecordsFailTheBatch: damage and an unknown key are errors for
// every op that names the record, and never read as absent.
func TestUnreadableRecordsFailTheBatch(t *testing.T) {
	t.Parallel()
	for _, kind := range state.Kinds() {
		k := key(kind, "x")
		if kind == state.KindScope {
			k = state.ScopeKey("s")
		}
		for name, o := range opsOn(k) {
			ops := []state.Op{o}
			if name == "Move" {
				ops = []state.Op{claim(hold("h")), o}
			}
			b := &state.Batch{Scope: "s", Ops: ops}
			if b.Validate() != nil {
				continue
			}
			for _, damage := range []error{state.ErrCorrupt, state.ErrKeyUnknown} {
				t.Run(name+" on "+kind.String()+": "+damage.Error(), func(t *testing.T) {
					t.Parallel()
					r := newRig(t)
					v := viewOf(r, b)
					v.Unreadable(k, state.Version{1}, &state.RecordError{Key: k, Err: damage})
					d := state.Decide(v, b, state.Context{Now: start, Version: state.Version{2}})
					switch {
					case name == "Sweep":
						if !d.Outcome.Applied || len(d.Writes) > 0 || !d.Outcome.Skipped[0] {
							t.Errorf("the sweeper does not pass over it: %+v", d)
						}
					case name == "Replace" && errors.Is(damage, state.ErrCorrupt):
						if d.Err != nil && !errors.Is(d.Err, state.ErrInvalid) { // a body that does not fit the kind
							t.Errorf("the operator's verb fails: %v", d.Err)
						}
					case !errors.Is(d.Err, damage) || d.Writes != nil || d.Outcome.Applied:
						t.Errorf("got %+v", d)
					}
				})
			}
		}
		b := &state.Batch{Scope: "s", Read: []state.Key{k}}
		r := newRig(t)
		v := viewOf(r, b)
		v.Unreadable(k, state.Version{1}, &state.RecordError{Key: k, Err: state.ErrCorrupt})
		if d := state.Decide(v, b, state.Context{Now: start}); !errors.Is(d.Err, state.ErrCorrupt) {
			t.Errorf("a read of a damaged %s record gives %v", kind, d.Err)
		}
	}
}

// viewOf loads all that a batch needs, as far as it is told beforehand.
func viewOf(r *rig, b *state.Batch) *state.View {
	v := state.NewView()
	for range 20 {
		d := state.Decide(v, b, state.Context{Now: r.Now, Version: state.Version{2}})
		keys := d.Need
		if len(keys) == 0 {
			return v
		}
		for _, k := range keys {
			if rec := r.record(k); rec != nil {
				v.Load(k, rec)
			} else {
				v.Absent(k)
			}
		}
	}
	r.Fatal("a decision needs more and more keys")
	return nil
}

// TestALiveRecordAnswersAlone: under the anchor's key, whatever state the rest
// of what the batch names is in.
func TestALiveRecordAnswersAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(claim(op("x")))
	r.applies(claim(hold("bad")))
	r.applies(state.PutBudget{Key: budget("b"), Unit: "USD", Limit: 9, Window: state.Window{Kind: state.WindowLifetime}})
	r.Damage(hold("bad"))
	r.Damage(budget("b"))
	other := change(claim(op("x")), func(o *state.Claim) { o.Token = state.Token{2} })
	rest := []state.Op{
		state.Refuse{Reason: "malformed"}, state.Settle{Key: hold("bad"), Token: state.Token{1}},
		state.Move{Key: budget("b"), Generation: state.Version{1}, Window: state.CurrentWindow, Give: spent, GiveAmount: 1},
	}
	r.refuses(reasons(state.Exists, "malformed"), append([]state.Op{other}, rest...)...)
	r.repeats(append([]state.Op{claim(op("x"))}, rest...)...)
	// On an absent key the damage counts.
	r.fails(state.ErrCorrupt, append([]state.Op{claim(op("y"))}, rest...)...)
	// And so it does for what the batch wants to read.
	r.failsBatch(state.ErrCorrupt, &state.Batch{Scope: "s", Ops: []state.Op{claim(op("x"))}, Read: []state.Key{hold("bad")}})
	// A damaged anchor is never absent.
	r.Damage(op("x"))
	r.fails(state.ErrCorrupt, other)
}

func TestFencesRise(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	last := uint64(0)
	for i := range 4 {
		r.applies(change(claim(op("x")), func(o *state.Claim) { o.Token = state.Token{byte(i + 1)} }))
		fence := r.record(op("x")).Fence
		if fence <= last || i == 0 && fence != start*1000 || i == 1 && fence != last+1 {
			t.Fatalf("fence %d after %d", fence, last)
		}
		last = fence
		r.applies(state.Drop{Key: op("x"), Token: state.Token{byte(i + 1)}})
	}
	// Neither a receipt nor its tombstone lets it fall.
	r.applies(change(claim(op("x")), func(o *state.Claim) { o.Token = state.Token{9} }))
	r.applies(state.Settle{Key: op("x"), Token: state.Token{9}, Retain: r.Now + 1, Expires: r.Now + 2})
	last = r.record(op("x")).Fence
	r.Now++
	r.applies(state.Sweep{Key: op("x")})
	if r.record(op("x")).Fence != last {
		t.Error("a tombstone forgets the fence")
	}
	r.Now++
	r.applies(change(claim(op("x")), func(o *state.Claim) { o.Token = state.Token{10} }))
	if r.record(op("x")).Fence <= last {
		t.Error("the fence falls after the tombstone")
	}
	if r.applies(claim(hold("h"))); r.record(hold("h")).Fence != 0 {
		t.Error("a hold has a fence")
	}
}

func TestUpdateKeepsPendingAndReplaces(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(claim(hold("x")))
	version := r.record(hold("x")).Version
	o := state.Update{Key: hold("x"), Token: state.Token{1}, IfVersion: version, Lease: start + hour, Expires: start + day, Body: []byte("new")}
	r.Now++
	r.applies(o)
	got := r.record(hold("x"))
	if got.State != state.Pending || got.Token != o.Token || got.Lease != o.Lease || got.Expires != o.Expires || string(got.Body) != "new" ||
		got.Created != start || got.Updated != start+1 || got.Owner != "ann" || got.Digest != (state.Digest{1}) {
		t.Errorf("%+v", got)
	}
	r.refuses(reasons(state.Changed), change(o, func(o *state.Update) { o.Lease++ }))
	r.applies(state.Update{Key: hold("x"), Token: state.Token{1}, NewToken: state.Token{2}, Given: state.Digest{3}})
	if got := r.record(hold("x")); got.Token != (state.Token{2}) || got.Given != (state.Digest{3}) {
		t.Errorf("%+v", got)
	}
}

func TestSettleAndDropWrite(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(change(claim(op("x")), func(o *state.Claim) { o.Lease = start + hour }))
	r.applies(state.Settle{Key: op("x"), Token: state.Token{1}, NewToken: state.Token{2}, Given: state.Digest{3}, Body: []byte("receipt"), Retain: start + day, Expires: start + 2*day})
	got := r.record(op("x"))
	if got.State != state.Settled || got.Token != (state.Token{2}) || got.Given != (state.Digest{3}) || got.Lease != 0 || string(got.Body) != "receipt" ||
		got.Retain != start+day || got.Expires != start+2*day || got.Digest != (state.Digest{1}) {
		t.Errorf("settled: %+v", got)
	}
	r.applies(claim(op("y")))
	r.applies(state.Drop{Key: op("y"), Token: state.Token{1}, NewToken: state.Token{2}, Given: state.Digest{3}, Why: []byte("ann: a typing error")})
	got = r.record(op("y"))
	if got.State != state.Void || got.Token != (state.Token{2}) || string(got.Body) != "ann: a typing error" || got.Expires != start+day {
		t.Errorf("void: %+v", got)
	}
}

// TestChallengesOfAnotherEpochOrGenerationAreOver, and consumed ones are not.
func TestChallengesOfAnotherEpochOrGenerationAreOver(t *testing.T) {
	t.Parallel()
	for name, turn := range map[string]func(r *rig){
		"epoch":      func(r *rig) { r.applies(state.Bump{Key: state.ScopeKey("s"), From: 1, Token: state.Token{1}}) },
		"generation": func(r *rig) { r.change(func(s *state.Scope) { s.Generation++ }) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			job, done := key(state.KindChallenge, "job"), key(state.KindChallenge, "done")
			r.applies(claim(job))
			r.applies(claim(done))
			if rec := r.record(job); rec.Epoch != 1 || rec.Generation != 1 {
				t.Fatalf("issued in epoch %d, generation %d", rec.Epoch, rec.Generation)
			}
			r.applies(state.Settle{Key: done, Token: state.Token{1}, Expires: start + day})
			turn(r)
			out := r.refuses(reasons(state.Expired), state.Settle{Key: job, Token: state.Token{1}})
			if out.Refusals[0].Record.Epoch != 1 {
				t.Error("the refusal does not show the stored epoch")
			}
			other := change(claim(job), func(o *state.Claim) { o.Token = state.Token{2} })
			r.applies(other)
			r.applies(state.Settle{Key: job, Token: state.Token{2}})
			r.refuses(reasons(state.Exists), change(claim(done), func(o *state.Claim) { o.Token = state.Token{2} }))
			r.refuses(reasons(state.NotPending), state.Settle{Key: done, Token: state.Token{1}, Given: state.Digest{1}})
		})
	}
}

func TestKeepStoresTheFiguresWithTheAnchor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(putBudget())
	gen := r.record(budget("b")).Budget().Generation
	m := change(move(), func(o *state.Move) { o.Generation = gen })
	b := &state.Batch{Scope: "s", Ops: []state.Op{claim(key(state.KindSpend, "x")), m}, Keep: true}
	first := r.run(b)
	r.change(func(*state.Scope) {})
	again := r.run(b)
	if !again.Repeated {
		t.Fatal("not repeated")
	}
	kept, err := state.DecodeResult(again.Anchor.Result)
	if err != nil || len(kept.Figures) != 1 || kept.Figures[0] != *first.Figures[1] || kept.Ops[0] != 1 || kept.Skipped[0] || kept.Extra {
		t.Errorf("%+v, %v", kept, err)
	}
	// An aborted one has nothing to replay.
	r.applies(state.Drop{Key: key(state.KindSpend, "x"), Token: state.Token{1}})
	if r.record(key(state.KindSpend, "x")).Result != nil {
		t.Error("a void record keeps an outcome")
	}
}

func TestReadShowsWhatWasThereBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(claim(hold("x")))
	out := r.run(&state.Batch{Scope: "s", Ops: []state.Op{state.Settle{Key: hold("x"), Token: state.Token{1}}}, Read: []state.Key{hold("x"), hold("y")}})
	if !out.Applied || out.Records[0].State != state.Pending || out.Records[1] != nil || out.Anchor.State != state.Settled {
		t.Errorf("%+v", out)
	}
}

func TestDecideAsksForWhatItNeedsAtOnce(t *testing.T) {
	t.Parallel()
	b := &state.Batch{Scope: "s", Ops: []state.Op{claim(op("x")), state.Settle{Key: hold("h"), Token: state.Token{1}}}, Read: []state.Key{hold("y")}}
	d := state.Decide(state.NewView(), b, state.Context{Now: start})
	for _, k := range []state.Key{state.ScopeKey("s"), op("x"), hold("h"), hold("y")} {
		if !slices.Contains(d.Need, k) {
			t.Errorf("does not ask for %v", k)
		}
	}
	keys := b.Keys(nil, 2)
	for _, k := range d.Need {
		if !slices.Contains(keys, k) {
			t.Errorf("Keys does not name %v", k)
		}
	}
}

func TestScopeMustExist(t *testing.T) {
	t.Parallel()
	r := emptyRig(t)
	for _, o := range []state.Op{
		claim(op("x")), state.Add{Key: key(state.KindCounter, "c"), Amount: 1},
		state.PutScope{Key: state.ScopeKey("s"), IfVersion: state.Version{1}, Scope: state.NewScope(1)},
	} {
		r.fails(state.ErrNoScope, o)
	}
	r.failsBatch(state.ErrNoScope, &state.Batch{Scope: "s", Read: []state.Key{op("x")}})
	r.fails(state.ErrNoScope, state.PutScope{Key: state.ScopeKey("s"), Scope: state.NewScope(1)}, state.Add{Key: key(state.KindCounter, "c"), Amount: 1})
}

func TestBodiesAreNotShared(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := claim(hold("x"))
	c.Body = []byte("mine")
	r.applies(c)
	copy(c.Body, "your")
	if !bytes.Equal(r.record(hold("x")).Body, []byte("mine")) {
		t.Error("a stored body changes with the caller's")
	}
}
