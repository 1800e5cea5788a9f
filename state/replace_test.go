package state_test

import (
	"errors"
	"testing"

	"github.com/counterfoil/counterfoil/state"
)

func TestReplaceOverwritesOnlyWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(claim(op("x")))
	version := r.record(op("x")).Version
	o := state.Replace{
		Key: op("x"), Version: version, State: state.Settled, Owner: "ann", Token: state.Token{2}, Digest: state.Digest{1}, Given: state.Digest{2},
		Body: []byte("resolved"), Retain: start + hour, Expires: start + day,
	}
	r.refuses(reasons(state.Readable), o)
	r.refuses(reasons(state.Readable), change(o, func(o *state.Replace) { o.Key = op("absent") }))
	r.Damage(op("x"))
	r.refuses(reasons(state.Changed), change(o, func(o *state.Replace) { o.Version = state.Version{9} }))
	r.refuses(reasons(state.Expired), change(o, func(o *state.Replace) { o.Retain, o.Expires = 0, start }))
	r.applies(o)
	got := r.record(op("x"))
	if got.State != state.Settled || got.Token != o.Token || got.Digest != o.Digest || got.Given != o.Given || string(got.Body) != "resolved" ||
		got.Retain != o.Retain || got.Expires != o.Expires || got.Owner != "ann" || got.Created != start {
		t.Errorf("%+v", got)
	}
	r.recount()
	r.refuses(reasons(state.Readable), o)
}

func TestReplaceReleasesThePlaceInTheCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.change(func(s *state.Scope) { s.Caps.Live, s.Caps.OwnerLive = 2, 2 })
	r.appliesAs(1, claim(op("x")))
	r.appliesAs(2, claim(op("y")))
	r.Damage(op("x"))
	// A damaged record is counted.
	r.refuses(reasons(state.Full, state.OwnerFull), claim(op("z")))
	version := r.Records[op("x")].Version
	r.applies(state.Replace{Key: op("x"), Version: version, State: state.Void, Owner: "ann", Body: []byte("why")})
	if got := r.record(op("x")); got.State != state.Void || got.Expires != start+state.VoidKeep {
		t.Errorf("%+v", got)
	}
	r.recount()
	r.applies(claim(op("z")))
	r.refuses(reasons(state.Full, state.OwnerFull), claim(op("w")))
	// All that is left can be given back, whichever shard it was taken for.
	r.applies(state.Drop{Key: op("y"), Token: state.Token{1}})
	r.applies(state.Drop{Key: op("z"), Token: state.Token{1}})
	r.recount()
}

func TestReplaceOfWhatIsNotCountedDoesNotBlock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(claim(op("x")))
	r.applies(state.Drop{Key: op("x"), Token: state.Token{1}})
	r.applies(claim(op("y")))
	r.Damage(op("x")) // it was void, and nobody can tell
	r.applies(state.Replace{Key: op("x"), Version: r.Records[op("x")].Version, State: state.Void, Owner: "ann"})
	r.applies(state.Drop{Key: op("y"), Token: state.Token{1}})
	r.recount()
}

func TestReplaceMendsTheStoresOwnRecords(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applies(state.Raise{Key: key(state.KindFloor, "f"), To: start})
	r.applies(state.Add{Key: key(state.KindCounter, "c"), Amount: 7})
	for k, body := range map[state.Key][]byte{
		key(state.KindFloor, "f"):   state.EncodeValue(1024),
		key(state.KindCounter, "c"): state.EncodeValue(5),
	} {
		r.Damage(k)
		version := r.Records[k].Version
		r.fails(state.ErrInvalid, state.Replace{Key: k, Version: version, State: state.Settled, Body: []byte("not a value")})
		r.applies(state.Replace{Key: k, Version: version, State: state.Settled, Body: body})
	}
	if r.record(key(state.KindFloor, "f")).Value != 1024 || r.record(key(state.KindCounter, "c")).Value != 5 {
		t.Error("not mended")
	}
	// The scope's own record, without which nothing else works.
	scope := state.ScopeKey("s")
	body := r.record(scope).Scope().Encode()
	r.Damage(scope)
	r.fails(state.ErrCorrupt, claim(op("x")))
	r.failsBatch(state.ErrCorrupt, &state.Batch{Scope: "s", Read: []state.Key{op("x")}})
	r.fails(state.ErrInvalid, state.Replace{Key: scope, Version: r.Records[scope].Version, State: state.Settled})
	r.applies(state.Replace{Key: scope, Version: r.Records[scope].Version, State: state.Settled, Body: body})
	r.applies(claim(op("x")))
}

func TestReplaceDoesNotTouchWhatIsSealedUnderAnUnknownKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := state.Replace{Key: op("x"), Version: state.Version{1}, State: state.Settled}
	b := &state.Batch{Scope: "s", Ops: []state.Op{o}}
	v := viewOf(r, b)
	v.Unreadable(op("x"), state.Version{1}, &state.RecordError{Key: op("x"), Err: state.ErrKeyUnknown})
	if d := state.Decide(v, b, state.Context{Now: start, Version: state.Version{2}}); !errors.Is(d.Err, state.ErrKeyUnknown) {
		t.Errorf("%+v", d)
	}
}
