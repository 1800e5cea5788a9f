package statetest

import (
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/state"
)

// Draw draws the next batch of a random program for a scope: most of them make
// sense to the model, many meet something in their way, a few are not valid.
func Draw(r *rapid.T, m *Model, now int64) *state.Batch {
	d := &drawer{T: r, m: m, now: now}
	b := &state.Batch{Scope: m.Name}
	scope, exists := m.Scope()
	if !exists {
		caps := rapid.SampledFrom([]state.Caps{state.DefaultCaps(), state.DefaultCaps(), tightCaps}).Draw(r, "caps")
		body := state.NewScope(1)
		body.Caps, body.Writers = caps, 3
		b.Ops = []state.Op{state.PutScope{Key: state.ScopeKey(m.Name), Scope: body}}
		return b
	}
	drawers := map[string]func(*state.Batch){
		"lives": d.lives, "reserve": d.reserve, "finish": d.finish, "budgets": d.budgets, "counters": d.counters, "permit": d.permit, "sweep": d.sweep,
		"scope": func(b *state.Batch) { d.scopes(b, scope) },
	}
	switch {
	case scope.Quarantine != "" && d.one("lift", 3):
		d.lift(b, scope)
	case d.missing() && !d.one("without a budget", 4):
		d.budgets(b)
	default:
		drawers[rapid.SampledFrom([]string{
			"reserve", "finish", "lives", "lives", "reserve", "finish", "reserve", "sweep", "budgets", "permit", "counters", "finish", "lives", "scope",
		}).Draw(r, "batch")](b)
	}
	if d.one("stale", 8) {
		b.NotAfter = now + d.pick("not after", 60_000, 1, 0, -1)
	}
	if d.one("keep", 4) && len(b.Ops) > 0 {
		switch b.Ops[0].(type) {
		case state.Claim, state.Update, state.Settle:
			b.Keep = true
		}
	}
	for range d.pick("reads", 0, 0, 0, 1, 2) {
		b.Read = append(b.Read, d.key(d.kind()))
	}
	if d.one("refuse", 25) {
		b.Ops = append(b.Ops, state.Refuse{Reason: "malformed"})
	}
	return b
}

// tightCaps are met after a few records.
var tightCaps = state.Caps{Live: 5, OwnerLive: 3, Tombstones: 1, OwnerTombstones: 1, Bytes: 500, OwnerBytes: 300}

// Units of time that the programs step by.
const (
	second = 1000
	hour   = 3600 * second
	day    = 24 * hour
)

// Step draws how far the clock goes on before the next batch.
func Step(r *rapid.T) int64 {
	return rapid.SampledFrom([]int64{0, 0, second, 0, 10 * second, 1, 0, hour, 10 * second, day, 40 * day}).Draw(r, "step")
}

type drawer struct {
	*rapid.T
	m   *Model
	now int64
}

func (d *drawer) pick(label string, values ...int64) int64 {
	return rapid.SampledFrom(values).Draw(d.T, label)
}

// one says yes once in n times.
func (d *drawer) one(label string, n int) bool { return rapid.IntRange(1, n).Draw(d.T, label) == n }

func (d *drawer) kind() state.Kind {
	return rapid.SampledFrom([]state.Kind{
		state.KindOperation, state.KindOperation, state.KindChallenge, state.KindHold, state.KindSpend, state.KindMarker, state.KindApproval,
	}).Draw(d.T, "kind")
}

func (d *drawer) key(kind state.Kind) state.Key {
	return state.Key{Scope: d.m.Name, Kind: kind, ID: rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(d.T, "id")}
}

func (d *drawer) token() state.Token {
	return state.Token{rapid.SampledFrom([]byte{1, 2, 3, 4, 5, 6}).Draw(d.T, "token")}
}

// tokenOf draws the token that holds a record most of the time.
func (d *drawer) tokenOf(key state.Key) state.Token {
	if f, ok := d.m.Facts[key]; ok && f.Token != (state.Token{}) && !d.one("wrong token", 5) {
		return f.Token
	}
	return d.token()
}

func (d *drawer) newToken() state.Token {
	if d.one("new token", 3) {
		return d.token()
	}
	return state.Token{}
}

func (d *drawer) digest() state.Digest {
	return state.Digest{rapid.SampledFrom([]byte{0, 1, 2}).Draw(d.T, "digest")}
}

func (d *drawer) owner() string {
	return rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(d.T, "owner")
}

func (d *drawer) body() []byte {
	return []byte(strings.Repeat("x", int(d.pick("body", 0, 3, state.FreeBodyBytes, state.FreeBodyBytes+1, 200))))
}

// ahead draws a time around now, or none.
func (d *drawer) ahead(label string) int64 {
	in := d.pick(label, 0, hour, 0, 10*second, 2*day, 1, -1)
	if in == 0 {
		return 0
	}
	return d.now + in
}

func (d *drawer) version(key state.Key) state.Version {
	if !d.one("if version", 6) {
		return state.Version{}
	}
	if f, ok := d.m.Facts[key]; ok && !d.one("wrong version", 3) {
		return f.Version
	}
	return state.Version{9}
}

// pending draws the key of a record that waits to be finished, if there is one.
func (d *drawer) pending(kinds ...state.Kind) (key state.Key, ok bool) {
	keys := slices.DeleteFunc(SortedKeys(d.m.Facts), func(key state.Key) bool {
		f := d.m.Facts[key]
		return !slices.Contains(kinds, key.Kind) || f.State != state.Pending || f.Damaged || f.Expires != 0 && f.Expires <= d.now
	})
	if len(keys) == 0 || d.one("not pending", 5) {
		return state.Key{}, false
	}
	return rapid.SampledFrom(keys).Draw(d.T, "pending"), true
}

// lives draws one to three ops on claimed records.
func (d *drawer) lives(b *state.Batch) {
	for range d.pick("ops", 1, 1, 2, 3) {
		b.Ops = append(b.Ops, d.life(d.key(d.kind())))
	}
}

func (d *drawer) life(key state.Key) state.Op {
	what := d.pick("op", 0, 2, 1, 3, 0)
	if what == 0 {
		return d.claim(key)
	}
	if k, ok := d.pending(key.Kind); ok {
		key = k
	}
	switch what {
	case 1:
		u := state.Update{
			Key: key, Token: d.tokenOf(key), NewToken: d.newToken(), IfVersion: d.version(key), IfLeaseAlive: d.one("if alive", 3), Given: d.digest(),
			Lease: d.ahead("lease"), Expires: d.ahead("expires"), Body: d.body(),
		}
		if key.Kind == state.KindOperation {
			u.Expires = 0
		}
		return u
	case 2:
		return d.settle(key)
	}
	return state.Drop{
		Key: key, Token: d.tokenOf(key), NewToken: d.newToken(), IfVersion: d.version(key), IfLeaseOver: d.one("if over", 4), Given: d.digest(), Why: []byte("why"),
	}
}

func (d *drawer) claim(key state.Key) state.Claim {
	c := state.Claim{
		Key: key, Owner: d.owner(), Token: d.token(), Digest: d.digest(), State: state.Pending, Body: d.body(),
		Expires: d.ahead("expires"), Lease: d.ahead("lease"),
	}
	if key.Kind == state.KindMarker || d.one("settled at once", 6) {
		c.State, c.Lease = state.Settled, 0
	} else if key.Kind == state.KindOperation {
		c.Expires = 0
	}
	return c
}

func (d *drawer) settle(key state.Key) state.Settle {
	s := state.Settle{
		Key: key, Token: d.tokenOf(key), NewToken: d.newToken(), IfVersion: d.version(key), IfLeaseOver: d.one("if over", 4), Given: d.digest(),
		Body: d.body(), Short: []byte("short"), Retain: d.ahead("retain"),
	}
	if s.Retain != 0 {
		s.Expires = s.Retain + d.pick("longer", 0, 10*second, 30*day)
	} else {
		s.Expires = d.ahead("expires")
	}
	return s
}

// permit draws the consumption of a permit.
func (d *drawer) permit(b *state.Batch) {
	key := d.key(state.KindMarker)
	c := d.claim(key)
	if c.Expires == 0 {
		c.Expires = d.now + hour
	}
	at := d.now + d.pick("issued", -2*day, -10*second, 0, 1)
	b.Ops = append(b.Ops, c, state.Check{Key: d.floor(), After: at}, state.Check{Key: state.ScopeKey(d.m.Name), After: at})
	if d.one("with an operation", 2) {
		b.Ops = append([]state.Op{d.claim(d.key(state.KindOperation))}, b.Ops...)
	}
}

func (d *drawer) floor() state.Key {
	return state.Key{Scope: d.m.Name, Kind: state.KindFloor, ID: rapid.SampledFrom([]string{"f", "g"}).Draw(d.T, "floor")}
}

// counters draws ops on counters and floors.
func (d *drawer) counters(b *state.Batch) {
	key := state.Key{Scope: d.m.Name, Kind: state.KindCounter, ID: rapid.SampledFrom([]string{"m", "n"}).Draw(d.T, "counter")}
	amount := uint64(d.pick("amount", 0, 1, 5, 10, state.MaxAmount))
	switch d.pick("op", 0, 1, 1, 2, 3, 4, 5, 6) {
	case 0:
		b.Ops = append(b.Ops, state.Add{Key: key, Amount: amount})
	case 1:
		b.Ops = append(b.Ops, state.Spend{Key: key, Amount: amount, Limit: uint64(d.pick("limit", 0, 10, 20))})
	case 2:
		b.Ops = append(b.Ops, state.Refund{Key: key, Amount: amount})
	case 3:
		b.Ops = append(b.Ops, state.Raise{Key: key, To: amount})
	case 4:
		b.Ops = append(b.Ops, state.Remove{Key: key})
	case 5:
		b.Ops = append(b.Ops, state.Raise{Key: d.floor(), To: uint64(d.now + d.pick("to", -10*second, 0, 10*second)), Ahead: d.pick("ahead", 0, state.Skew)})
	case 6:
		b.Ops = append(b.Ops, state.PutKeyCheck{Key: state.Key{Scope: d.m.Name, Kind: state.KindKeyCheck, ID: "k"}, Digest: d.digest()})
	}
}

// sweep draws a batch of the sweeper.
func (d *drawer) sweep(b *state.Batch) {
	for _, key := range SortedKeys(d.m.Facts) {
		f := d.m.Facts[key]
		if f.Expires != 0 || f.Retain != 0 {
			if len(b.Ops) < state.MaxKeys {
				b.Ops = append(b.Ops, state.Sweep{Key: key})
			}
		}
	}
	if len(b.Ops) == 0 || d.one("another", 3) {
		key := d.key(d.kind())
		if !slices.ContainsFunc(b.Ops, func(op state.Op) bool { return keyOf(op) == key }) {
			b.Ops = append(b.Ops, state.Sweep{Key: key})
		}
	}
}

// scopes draws changes of the scope itself.
func (d *drawer) scopes(b *state.Batch, body state.Scope) {
	key := state.ScopeKey(d.m.Name)
	version := d.m.Facts[key].Version
	switch d.pick("op", 0, 1, 2, 3, 4, 5) {
	case 0:
		b.Ops = append(b.Ops, state.Bump{Key: key, From: body.Epoch - uint64(d.pick("behind", 0, 0, 0, 1)) + boolean(body.Epoch == 1), Token: d.token()})
		return
	case 1:
		b.Ops = append(b.Ops, state.Raise{Key: key, To: uint64(d.now), Ahead: d.pick("ahead", 0, state.Skew)})
		return
	case 2:
		body.Caps = rapid.SampledFrom([]state.Caps{state.DefaultCaps(), tightCaps, {Live: 2, OwnerLive: 1, Tombstones: 1, OwnerTombstones: 1, Bytes: 200, OwnerBytes: 200}}).Draw(d.T, "caps")
	case 3:
		body.Quarantine = "restored"
		body.Generation++
	case 4:
		d.lift(b, body)
		return
	case 5:
		body.Epoch-- // never goes back, and 0 is not one
	}
	if d.one("stale version", 8) {
		version = state.Version{9}
	}
	b.Ops = append(b.Ops, state.PutScope{Key: key, IfVersion: version, Scope: body})
}

// lift ends a quarantine.
func (d *drawer) lift(b *state.Batch, body state.Scope) {
	key := state.ScopeKey(d.m.Name)
	body.Quarantine, body.Note = "", "looked through"
	body.Epoch += uint64(d.pick("epochs", 0, 1))
	b.Ops = append(b.Ops, state.PutScope{Key: key, IfVersion: d.m.Facts[key].Version, Scope: body})
}

func boolean(set bool) uint64 {
	if set {
		return 1
	}
	return 0
}
