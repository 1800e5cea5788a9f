package statetest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/counterfoil/counterfoil/state"
)

// Stamp is what a commit gives to the records that it writes, besides what the
// batch says.
type Stamp struct {
	Now        int64
	Version    state.Version // read only by what names a version: PutScope, IfVersion, Replace
	Generation state.Version // of the budgets that the batch defines
}

// StampOf reads the stamp of a commit off its outcome, as far as it shows.
func StampOf(b *state.Batch, out state.Outcome) Stamp {
	s := Stamp{Now: out.Now}
	if out.Anchor != nil {
		s.Version = out.Anchor.Version
	}
	for i, op := range b.Ops {
		if _, ok := op.(state.PutBudget); ok && out.Applied {
			s.Generation = out.Figures[i].Generation
		}
	}
	return s
}

// Model is one scope as the rules see it. It counts by looking at everything,
// and knows nothing of shards and seals. A record that was damaged is still
// there, and counted.
type Model struct {
	Name  string
	Facts map[state.Key]*Fact // facts are never changed, only replaced
}

// Fact is one record.
type Fact struct {
	Seen
	Version state.Version
	Damaged bool
	Budget  *Budget
}

// NewModel makes a scope that was not created yet.
func NewModel(name string) *Model { return &Model{Name: name, Facts: map[state.Key]*Fact{}} }

// Clone copies a model: what is done to one leaves the other alone.
func (m *Model) Clone() *Model { return &Model{Name: m.Name, Facts: maps.Clone(m.Facts)} }

// Damage makes a record unreadable, as a flipped bit would.
func (m *Model) Damage(key state.Key) {
	if f, ok := m.Facts[key]; ok {
		c := *f
		c.Damaged = true
		m.Facts[key] = &c
	}
}

// Scope is the body of the scope's record; ok is false if there is none.
func (m *Model) Scope() (body state.Scope, ok bool) {
	f, ok := m.Facts[state.ScopeKey(m.Name)]
	if !ok {
		return state.Scope{}, false
	}
	return f.Seen.Scope, true
}

// Apply runs a batch and says what the answer must be. The model changes only
// if the batch is applied.
func (m *Model) Apply(b *state.Batch, s Stamp) Answer {
	if b.Validate() != nil {
		return Answer{Err: state.ErrInvalid}
	}
	t := &trial{Model: m, Stamp: s, b: b, after: map[state.Key]*Fact{}, extras: map[int]uint64{}}
	t.attempt(t.run)
	if t.a.Err != nil {
		return Answer{Err: t.a.Err}
	}
	if t.a.Applied {
		for k, f := range t.after {
			if f == nil {
				delete(m.Facts, k)
			} else {
				m.Facts[k] = f
			}
		}
	}
	return t.a
}

// trial is one batch on its way.
type trial struct {
	*Model
	Stamp
	b      *state.Batch
	scope  state.Scope
	a      Answer
	after  map[state.Key]*Fact // what is written; nil: deleted
	extras map[int]uint64      // by op: what it would like to spend on top; its budget may be gone
	short  bool                // a bucket held less than was taken from it
}

// stop is thrown where a batch can get no outcome.
type stop struct{ err error }

// attempt runs a step; if the step stops, its error is noted.
func (t *trial) attempt(step func()) (went bool) {
	defer func() {
		if r := recover(); r != nil {
			s, ok := r.(stop)
			if !ok {
				panic(r)
			}
			t.a.Err, went = s.err, false
		}
	}()
	step()
	return true
}

func (t *trial) run() {
	scope, exists := t.Facts[state.ScopeKey(t.Name)]
	switch {
	case exists && scope.Damaged:
		panic(stop{state.ErrCorrupt})
	case exists:
		t.scope = scope.Seen.Scope
	default:
		if len(t.b.Ops) != 1 {
			panic(stop{state.ErrNoScope})
		}
		p, creates := t.b.Ops[0].(state.PutScope)
		if !creates || p.IfVersion != (state.Version{}) {
			panic(stop{state.ErrNoScope})
		}
		t.scope = p.Scope
	}
	if len(t.b.Ops) > 0 && t.settledByAnchor() {
		return
	}
	n := len(t.b.Ops)
	t.a.Figures, t.a.Values, t.a.Skipped = make([]*state.Figures, n), make([]uint64, n), make([]bool, n)
	if t.b.NotAfter != 0 && t.Now > t.b.NotAfter {
		t.refuse(-1, state.Stale)
	}
	if !t.attempt(t.decide) {
		// A live record under the anchor's key answers alone, whatever else the batch meets.
		_, claims := t.b.Ops[0].(state.Claim)
		alone := claims && slices.ContainsFunc(t.a.Refusals, func(r Refused) bool { return r.Op == 0 && r.Reason == state.Exists })
		if t.a.Err != state.ErrCorrupt || !alone { //nolint:errorlint // a model has the sentinels themselves.
			return
		}
		t.a.Err, t.a.Records = nil, nil
	}
	t.conclude()
}

func (t *trial) conclude() {
	t.a.Applied = len(t.a.Refusals) == 0
	if !t.a.Applied {
		slices.SortStableFunc(t.a.Refusals, func(a, b Refused) int { return cmp.Compare(a.Op, b.Op) })
		t.a.Figures, t.a.Values, t.a.Skipped, t.a.Extra = nil, nil, nil, false
		return
	}
	for _, f := range t.after {
		if f != nil {
			f.Version = t.Version
		}
	}
	if key, ok := anchorOf(t.b); ok {
		t.a.Anchor = t.shown(t.after[key])
	}
}

func (t *trial) decide() {
	for i, op := range t.b.Ops {
		before := len(t.a.Refusals)
		if !t.attempt(func() { t.op(i, op) }) {
			t.a.Refusals = t.a.Refusals[:before]
			panic(stop{t.a.Err})
		}
	}
	t.checkParents()
	t.giveExtras()
	if key, ok := anchorOf(t.b); ok && t.b.Keep && len(t.a.Refusals) == 0 {
		t.after[key].Kept = t.kept()
	}
	if t.short && len(t.a.Refusals) == 0 {
		panic(stop{state.ErrCorrupt})
	}
	t.read()
	t.checkCaps()
}

func (t *trial) read() {
	for _, k := range t.b.Read {
		t.a.Records = append(t.a.Records, t.shown(t.look(k)))
	}
}

func (t *trial) kept() *state.Kept {
	k := &state.Kept{Extra: t.a.Extra}
	for i, f := range t.a.Figures {
		if f != nil {
			k.Figures, k.Ops, k.Skipped = append(k.Figures, *f), append(k.Ops, i), append(k.Skipped, t.a.Skipped[i])
		}
	}
	return k
}

func (t *trial) shown(f *Fact) *Seen {
	if f == nil {
		return nil
	}
	s := f.Seen
	return &s
}

func (t *trial) refuse(op int, reason state.Reason) *Refused {
	t.a.Refusals = append(t.a.Refusals, Refused{Op: op, Reason: reason})
	return &t.a.Refusals[len(t.a.Refusals)-1]
}

// look gives a record as the rules see it now, nil if there is none. What a
// settled record held is gone from the end of its retention on.
func (t *trial) look(key state.Key) *Fact {
	f, ok := t.Facts[key]
	if !ok {
		return nil
	}
	if f.Damaged {
		panic(stop{state.ErrCorrupt})
	}
	forgotten := f.Retain != 0 && t.Now >= f.Retain || f.Expires != 0 && t.Now >= f.Expires
	if f.State == state.Settled && !f.Tomb && forgotten {
		return f.tombstone()
	}
	return f
}

func (f *Fact) tombstone() *Fact {
	return &Fact{Version: f.Version, Seen: Seen{State: state.Settled, Tomb: true, Created: f.Created, Expires: f.Expires, Fence: f.Fence, ownerTag: f.ownerTag}}
}

// over reports whether a record's time has come.
func (t *trial) over(kind state.Kind, f *Fact) bool {
	outdated := kind == state.KindChallenge && f.State == state.Pending && (f.Epoch != t.scope.Epoch || f.Generation != t.scope.Generation)
	return outdated || f.Expires != 0 && t.Now >= f.Expires
}

func (t *trial) live(kind state.Kind, f *Fact) bool {
	return f != nil && f.State != state.Void && !t.over(kind, f)
}

// anchorOf gives the key of the op that decides repetition.
func anchorOf(b *state.Batch) (state.Key, bool) {
	if len(b.Ops) == 0 {
		return state.Key{}, false
	}
	switch o := b.Ops[0].(type) {
	case state.Claim:
		return o.Key, true
	case state.Update:
		return o.Key, true
	case state.Settle:
		return o.Key, true
	case state.Drop:
		return o.Key, true
	case state.Bump:
		return o.Key, true
	}
	return state.Key{}, false
}

// settledByAnchor reports whether the anchor is the answer: the batch was
// applied before, or its claim came to an end since.
func (t *trial) settledByAnchor() bool {
	key, ok := anchorOf(t.b)
	if !ok {
		return false
	}
	f := t.look(key)
	if f == nil {
		return false
	}
	now := func(token, next state.Token) state.Token {
		if next != (state.Token{}) {
			return next
		}
		return token
	}
	same := false
	switch o := t.b.Ops[0].(type) {
	case state.Claim:
		if f.Token != o.Token {
			return false
		}
		switch {
		case f.State == state.Void:
			t.refuse(0, state.Aborted).Record = t.shown(f)
			return true
		case t.over(key.Kind, f):
			t.refuse(0, state.Expired).Record = t.shown(f)
			return true
		}
		same = f.Digest == o.Digest
	case state.Settle:
		same = f.State == state.Settled && f.Token == now(o.Token, o.NewToken) && f.Given == o.Given && !t.over(key.Kind, f)
	case state.Drop:
		same = f.State == state.Void && f.Token == now(o.Token, o.NewToken) && !t.over(key.Kind, f)
	case state.Update:
		same = f.State == state.Pending && f.Token == now(o.Token, o.NewToken)
		if o.NewToken != (state.Token{}) {
			same = same && f.Given == o.Given
		} else {
			same = same && f.Lease == o.Lease && f.Expires == o.Expires && f.Body == string(o.Body)
		}
	case state.Bump:
		same = f.Seen.Scope.Epoch == o.From+1 && f.Token == o.Token
	}
	if same {
		t.a.Repeated, t.a.Anchor = true, t.shown(f)
		t.read()
	}
	return same
}
