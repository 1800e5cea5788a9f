package budget_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/state"
)

// model is what budgets should do, in the plainest words: no buckets, no batches, no records. It remembers every spend and
// hold, and adds them up whenever it is asked.
type model struct {
	now     int64
	gen     int
	budgets map[string]*modelBudget
	spends  map[string]*modelUse // by request id
	holds   map[string]*modelUse
}

type modelBudget struct {
	parent    string
	parentGen int
	gen       int
	limit     uint64
	seconds   int64 // of its window; 0: lifetime
}

// modelUse is a spend or a hold.
type modelUse struct {
	entries []budget.Entry
	shares  map[string]*modelShare
	until   int64
	state   budget.HoldState // of a hold; of a spend "spent" or "refunded"
	given   string           // what settled it
	token   state.Token
	bare    bool
	used    bool
	extra   bool
}

// modelShare is what a use took in one budget, in one window of one definition of it.
type modelShare struct {
	gen    int
	window int64
	spent  uint64
	held   uint64
}

func (m *model) window(b *modelBudget) int64 {
	if b.seconds == 0 {
		return 0
	}
	return m.now - m.now%(b.seconds*1000)
}

func (m *model) counts(name string, s *modelShare) bool {
	b := m.budgets[name]
	return b != nil && b.gen == s.gen && m.window(b) == s.window
}

// stands adds up what is spent and held in a budget.
func (m *model) stands(name string) (spent, held uint64) {
	add := func(u *modelUse) {
		s := u.shares[name]
		if s == nil || !m.counts(name, s) {
			return
		}
		spent += s.spent
		if u.state == budget.HoldFenced || u.state == budget.HoldOpen && u.until > m.now {
			held += s.held
		}
	}
	for _, u := range m.spends {
		add(u)
	}
	for _, u := range m.holds {
		add(u)
	}
	return spent, held
}

// spread adds up entries in their budgets and all above; it reports false if one of them is not there.
func (m *model) spread(entries []budget.Entry) (map[string]uint64, bool) {
	sums := map[string]uint64{}
	for _, e := range entries {
		want := 0
		for name := e.Budget; name != ""; {
			b := m.budgets[name]
			if b == nil || want != 0 && b.gen != want {
				return nil, false
			}
			sums[name] += e.Amount
			name, want = b.parent, b.parentGen
		}
	}
	return sums, true
}

func (m *model) fits(sums map[string]uint64) bool {
	for name, n := range sums {
		spent, held := m.stands(name)
		if n > 0 && spent+held+n > m.budgets[name].limit {
			return false
		}
	}
	return true
}

// take answers a spend or a hold that nobody made before.
func (m *model) take(entries []budget.Entry, hold bool) (*modelUse, error) {
	sums, known := m.spread(entries)
	if !known {
		return nil, budget.ErrBudgetUnknown
	}
	if !m.fits(sums) {
		return nil, budget.ErrExceeded
	}
	u := &modelUse{entries: entries, shares: map[string]*modelShare{}}
	for name, n := range sums {
		s := &modelShare{gen: m.budgets[name].gen, window: m.window(m.budgets[name])}
		if hold {
			s.held = n
		} else {
			s.spent = n
		}
		u.shares[name] = s
	}
	return u, nil
}

// gone and rolled say whether any budget of a use was closed, or any window of it is over.
func (m *model) gone(u *modelUse) bool {
	for name, s := range u.shares {
		if b := m.budgets[name]; b == nil || b.gen != s.gen {
			return true
		}
	}
	return false
}

func (m *model) rolled(u *modelUse) bool {
	for name, s := range u.shares {
		if b := m.budgets[name]; b != nil && b.gen == s.gen && m.window(b) != s.window {
			return true
		}
	}
	return false
}

// settle charges what is asked of a hold that may be settled.
func (m *model) settle(u *modelUse, capture []budget.Entry, void bool) {
	base, extra := map[string]uint64{}, map[string]uint64{}
	for _, e := range u.entries {
		asked := uint64(0)
		for _, c := range capture {
			if c.Budget == e.Budget {
				asked = c.Amount
			}
		}
		for name := range m.chain(e.Budget, u) {
			base[name] += min(asked, e.Amount)
			extra[name] += asked - min(asked, e.Amount)
		}
	}
	for name, s := range u.shares {
		s.held, s.spent = 0, base[name]
	}
	u.state = budget.HoldCaptured
	if void {
		u.state = budget.HoldVoided
		return
	}
	u.extra = true
	for name, n := range extra {
		if n == 0 {
			continue
		}
		spent, held := m.stands(name)
		if !m.counts(name, u.shares[name]) || spent+held+n > m.budgets[name].limit {
			u.extra = false
		}
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(extra)), func(n uint64) bool { return n > 0 }) {
		u.extra = false
	}
	if u.extra {
		for name, n := range extra {
			u.shares[name].spent += n
		}
	}
}

// parents is the ancestry that the model's budgets have whenever they are defined.
var parents = map[string]string{"org": "", "org/a": "org", "org/b": "org", "x": "org/a", "win": "", "win/c": "win"}

func (m *model) chain(name string, u *modelUse) map[string]bool {
	chain := map[string]bool{}
	for ; name != ""; name = parents[name] {
		if u.shares[name] != nil {
			chain[name] = true
		}
	}
	return chain
}

// remove closes one budget: what open holds hold in it returns to those above, as far as they are there.
func (m *model) remove(name string) {
	b := m.budgets[name]
	for _, u := range m.holds {
		s := u.shares[name]
		if u.state != budget.HoldOpen || u.until <= m.now || s == nil || s.gen != b.gen {
			continue
		}
		above, want := b.parent, b.parentGen
		for above != "" && m.budgets[above] != nil && m.budgets[above].gen == want {
			u.shares[above].held -= s.held
			above, want = m.budgets[above].parent, m.budgets[above].parentGen
		}
		s.held = 0
	}
	delete(m.budgets, name)
}

// run is the model beside two stores on one engine.
type run struct {
	*rapid.T
	m    *model
	f    *storetest.Fixture
	on   []*rig
	ops  int
	last string
}

func (r *run) rig() *rig {
	r.ops++
	return r.on[r.ops%2]
}

func (r *run) want(err, want error, also ...error) {
	if want == nil && err == nil || want != nil && errors.Is(err, want) {
		return
	}
	for _, w := range also {
		if errors.Is(err, w) {
			return
		}
	}
	r.Fatalf("%s: got %v, want %v", r.last, err, want)
}

func (r *run) note(format string, args ...any) { r.last = fmt.Sprintf(format, args...) }

func (r *run) genEntries() []budget.Entry {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"org", "org/a", "org/b", "x", "win/c"}), 1, 3, rapid.ID[string]).Draw(r.T, "budgets")
	list := make([]budget.Entry, len(names))
	for i, name := range names {
		list[i] = budget.Entry{Budget: name, Amount: rapid.Uint64Range(0, 12).Draw(r.T, "amount")}
	}
	return list
}

func same(a, b []budget.Entry) bool {
	if len(a) != len(b) {
		return false
	}
	for _, e := range a {
		if !slices.Contains(b, e) {
			return false
		}
	}
	return true
}

func (r *run) request() string { return strconv.Itoa(rapid.IntRange(0, 11).Draw(r.T, "request")) }

func (r *run) spend(*rapid.T) {
	id, list := r.request(), r.genEntries()
	r.note("spend %s %v", id, list)
	got, err := r.rig().Spend(ctx(), budget.SpendParams{Scope: scope, Owner: owner, RequestID: id, Entries: list})
	if u := r.m.spends[id]; u != nil {
		switch {
		case !same(u.entries, list):
			r.want(err, budget.ErrRequestIDReused)
		case u.state == "refunded":
			r.want(err, budget.ErrRefunded)
		default:
			r.want(err, nil)
			if !got.Repeated {
				r.Fatalf("%s: not repeated", r.last)
			}
		}
		return
	}
	u, want := r.m.take(list, false)
	r.want(err, want)
	if want == nil {
		u.state = "spent"
		r.m.spends[id] = u
		r.figures(got.Budgets)
	}
}

func (r *run) refund(*rapid.T) {
	id := r.request()
	r.note("refund %s", id)
	_, err := r.rig().Refund(ctx(), budget.RefundParams{Scope: scope, Owner: owner, SpendID: ids.Spend(owner, id)})
	u := r.m.spends[id]
	if u == nil {
		r.want(err, budget.ErrSpendUnknown)
		return
	}
	r.want(err, nil)
	u.state = "refunded"
	for _, s := range u.shares {
		s.spent = 0
	}
}

func (r *run) hold(*rapid.T) {
	id, list := r.request(), r.genEntries()
	ttl := time.Duration(rapid.IntRange(1, 300).Draw(r.T, "seconds")) * time.Second
	r.note("hold %s %v %v", id, list, ttl)
	got, err := r.rig().Hold(ctx(), budget.HoldParams{Scope: scope, Owner: owner, RequestID: id, Entries: list, TTL: ttl})
	if u := r.m.holds[id]; u != nil && (u.state != budget.HoldOpen || u.until > r.m.now) {
		switch {
		case !same(u.entries, list):
			r.want(err, budget.ErrRequestIDReused)
		case u.state != budget.HoldOpen:
			r.want(err, budget.ErrHoldSettled)
		default:
			r.want(err, nil)
			if !got.Repeated {
				r.Fatalf("%s: not repeated", r.last)
			}
		}
		return
	}
	u, want := r.m.take(list, true)
	r.want(err, want)
	if want == nil {
		u.state, u.until = budget.HoldOpen, got.ExpiresAt.UnixMilli()
		r.m.holds[id] = u
		r.figures(got.Budgets)
	}
}

// open says whether an owner's step on a hold repeats the one that settled it, or which refusal it meets, nil if none.
func (r *run) open(u *modelUse, given string) (repeated bool, refusal error) {
	switch {
	case u == nil:
		return false, budget.ErrHoldUnknown
	case u.state == budget.HoldFenced:
		return false, budget.ErrHoldFenced
	case u.state != budget.HoldOpen && !u.used && u.given == given:
		return true, nil
	case u.state != budget.HoldOpen:
		return false, budget.ErrHoldSettled
	case u.until <= r.m.now:
		return false, budget.ErrHoldExpired
	case r.m.gone(u):
		return false, budget.ErrHoldSettled
	}
	return false, nil
}

func (r *run) genCapture(u *modelUse) []budget.Entry {
	var list []budget.Entry
	if u == nil {
		return list
	}
	for _, e := range u.entries {
		if rapid.IntRange(0, 4).Draw(r.T, "named") > 0 {
			list = append(list, budget.Entry{Budget: e.Budget, Amount: rapid.Uint64Range(0, 2*e.Amount+2).Draw(r.T, "captured")})
		}
	}
	return list
}

func givenCapture(list []budget.Entry) string {
	sorted := slices.SortedFunc(slices.Values(list), func(a, b budget.Entry) int { return cmpString(a.Budget, b.Budget) })
	return fmt.Sprint("capture", sorted)
}

func cmpString(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (r *run) capture(*rapid.T) {
	id := r.request()
	u := r.m.holds[id]
	list := r.genCapture(u)
	r.note("capture %s %v", id, list)
	got, err := r.rig().Capture(ctx(), budget.CaptureParams{Scope: scope, Owner: owner, HoldID: ids.Hold(owner, id), Capture: &list})
	repeated, want := r.open(u, givenCapture(list))
	r.want(err, want)
	if want != nil {
		return
	}
	if !repeated {
		r.m.settle(u, list, false)
		u.given = givenCapture(list)
		r.figures(got.Budgets)
	}
	r.charged(u, list, got.Captured, got.Uncaptured)
}

// charged checks that what was asked is either captured or uncaptured, and never cut when it fits.
func (r *run) charged(u *modelUse, asked, captured, uncaptured []budget.Entry) {
	sum := map[string]uint64{}
	for _, e := range append(slices.Clone(captured), uncaptured...) {
		sum[e.Budget] += e.Amount
	}
	for _, e := range asked {
		if sum[e.Budget] != e.Amount {
			r.Fatalf("%s: captured %v and uncaptured %v are not what was asked", r.last, captured, uncaptured)
		}
		for _, held := range u.entries {
			if held.Budget == e.Budget && e.Amount > held.Amount && u.extra != !slices.ContainsFunc(uncaptured, func(x budget.Entry) bool { return x.Budget == e.Budget }) {
				r.Fatalf("%s: uncaptured %v, and the extra fits: %v", r.last, uncaptured, u.extra)
			}
		}
	}
}

func (r *run) void(*rapid.T) {
	id := r.request()
	r.note("void %s", id)
	u := r.m.holds[id]
	repeated, want := r.open(u, "void")
	r.want(r.rig().void(ids.Hold(owner, id)), want)
	if want == nil && !repeated {
		r.m.settle(u, nil, true)
		u.given = "void"
	}
}

func (r *run) extend(*rapid.T) {
	id := r.request()
	ttl := time.Duration(rapid.IntRange(1, 600).Draw(r.T, "seconds")) * time.Second
	r.note("extend %s %v", id, ttl)
	u := r.m.holds[id]
	got, err := r.rig().Extend(ctx(), budget.ExtendParams{Scope: scope, Owner: owner, HoldID: ids.Hold(owner, id), TTL: ttl})
	repeated, want := r.open(u, "extend")
	if repeated {
		r.Fatal("nothing is settled by an extension")
	}
	switch {
	case u != nil && u.state == budget.HoldOpen && u.until > r.m.now && r.m.rolled(u):
		// With a closed budget besides, either answer is right.
		also := []error{want}
		if want == nil {
			also = nil
		}
		r.want(err, budget.ErrWindowClosed, also...)
	default:
		r.want(err, want)
	}
	if err == nil {
		u.until = got.ExpiresAt.UnixMilli()
	}
}

func (r *run) fence(*rapid.T) {
	id := r.request()
	on := r.rig()
	token, err := on.Token()
	on.must(err)
	bare := rapid.Bool().Draw(r.T, "bare")
	r.note("fence %s", id)
	part, err := on.Fence(ctx(), scope, budget.FenceParams{HoldID: ids.Hold(owner, id), Owner: owner, NewToken: token, Bare: bare})
	on.must(err)
	out, at := on.do("op"+strconv.Itoa(r.ops), part)
	_, err = part.Read(&out, at[0])
	u := r.m.holds[id]
	_, want := r.open(u, "fence")
	r.want(err, want)
	if want == nil {
		u.state, u.token, u.bare, u.used = budget.HoldFenced, token, bare, true
	}
}

func (r *run) settleFenced(*rapid.T) {
	id := r.request()
	u := r.m.holds[id]
	if u == nil || u.state != budget.HoldFenced {
		return
	}
	list := r.genCapture(u)
	on := r.rig()
	params := budget.SettleParams{HoldID: ids.Hold(owner, id), Token: u.token, Capture: &list}
	switch {
	case u.bare:
		r.note("capture %s %v by its token", id, list)
		got, err := on.Capture(ctx(), budget.CaptureParams{Scope: scope, Owner: "tool", HoldID: params.HoldID, Capture: &list, Token: u.token})
		r.want(err, nil)
		r.m.settle(u, list, false)
		r.charged(u, list, got.Captured, got.Uncaptured)
	case rapid.Bool().Draw(r.T, "void"):
		r.note("void %s by its operation", id)
		part, err := on.VoidHold(ctx(), scope, params)
		on.must(err)
		on.apply("op"+strconv.Itoa(r.ops), part)
		r.m.settle(u, nil, true)
	default:
		r.note("settle %s %v by its operation", id, list)
		part, err := on.SettleHold(ctx(), scope, params)
		on.must(err)
		got := on.apply("op"+strconv.Itoa(r.ops), part)
		r.m.settle(u, list, false)
		r.charged(u, list, got.Captured, got.Uncaptured)
	}
}

func (r *run) define(*rapid.T) {
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(parents))).Draw(r.T, "name")
	limit := rapid.Uint64Range(0, 60).Draw(r.T, "limit")
	r.note("define %s %d", name, limit)
	d := budget.Definition{Name: name, Unit: "cents", Limit: limit, Window: budget.Window{Kind: budget.Lifetime}, Parent: parents[name]}
	seconds := int64(0)
	if name == "win" {
		seconds = 60
		d.Window = budget.Window{Kind: budget.Fixed, Seconds: 60}
	}
	got, err := r.rig().Define(ctx(), budget.DefineParams{Scope: scope, Definition: d})
	b := r.m.budgets[name]
	if b != nil {
		if above := r.m.budgets[b.parent]; b.parent != "" && (above == nil || above.gen != b.parentGen) {
			r.want(err, budget.ErrDiffers)
			return
		}
		r.want(err, nil)
		b.limit = limit
		return
	}
	// The model keeps parents that are there only by name: a new budget needs a whole line above it.
	if _, ok := r.m.spread([]budget.Entry{{Budget: d.Parent}}); d.Parent != "" && !ok {
		r.want(err, budget.ErrBudgetUnknown)
		return
	}
	r.want(err, nil)
	if !got.Created {
		r.Fatalf("%s: not created", r.last)
	}
	r.m.gen++
	b = &modelBudget{parent: d.Parent, gen: r.m.gen, limit: limit, seconds: seconds}
	if d.Parent != "" {
		b.parentGen = r.m.budgets[d.Parent].gen
	}
	r.m.budgets[name] = b
}

func (r *run) close(*rapid.T) {
	prefix := rapid.SampledFrom([]string{"org", "org/a", "org/b", "x"}).Draw(r.T, "prefix")
	r.note("close %s", prefix)
	var within []string
	for name := range r.m.budgets {
		if budget.Within(prefix, name) {
			within = append(within, name)
		}
	}
	slices.SortFunc(within, func(a, b string) int { return len(b) - len(a) })
	got, err := r.rig().Budgets.Close(ctx(), budget.CloseParams{Scope: scope, Prefix: prefix})
	r.want(err, nil)
	if got.Removed != len(within) {
		r.Fatalf("%s: %d were removed, want %v", r.last, got.Removed, within)
	}
	for _, name := range within {
		r.m.remove(name)
	}
}

func (r *run) advance(*rapid.T) {
	d := time.Duration(rapid.IntRange(1, 40_000).Draw(r.T, "ms")) * time.Millisecond
	r.f.Clock.Advance(d)
	r.m.now = r.f.Now()
	r.note("advance %v", d)
}

// figures checks what a grant answered: nothing is above the limit that was in force.
func (r *run) figures(list []budget.Figures) {
	for _, f := range list {
		spent, held := r.m.stands(f.Name)
		if f.Spent != spent || f.Held != held {
			r.Fatalf("%s: answered %d spent, %d held in %s; want %d, %d", r.last, f.Spent, f.Held, f.Name, spent, held)
		}
		if f.Amount > 0 && f.Spent+f.Held > f.Limit {
			r.Fatalf("%s: granted above the limit: %+v", r.last, f)
		}
	}
}

// check compares every budget and hold with the model.
func (r *run) check(*rapid.T) {
	for name := range parents {
		got, err := r.on[0].Get(ctx(), budget.GetParams{Scope: scope, Name: name})
		if r.m.budgets[name] == nil {
			r.want(err, budget.ErrBudgetUnknown)
			continue
		}
		r.want(err, nil)
		if spent, held := r.m.stands(name); got.Spent != spent || got.Held != held {
			r.Fatalf("after %s: %s stands at %d spent, %d held; want %d, %d", r.last, name, got.Spent, got.Held, spent, held)
		}
	}
	for id, u := range r.m.holds {
		want := u.state
		if want == budget.HoldOpen && u.until <= r.m.now {
			want = budget.HoldExpired
		}
		if got := r.on[1].holdState(ids.Hold(owner, id)); got != want {
			r.Fatalf("after %s: hold %s is %s, want %s", r.last, id, got, want)
		}
	}
}

// TestBudgetsDoWhatAPlainModelDoes runs random programs on two stores that share one engine, beside the model.
func TestBudgetsDoWhatAPlainModelDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := storetest.Memory(t)
		m := &model{now: f.Now(), budgets: map[string]*modelBudget{}, spends: map[string]*modelUse{}, holds: map[string]*modelUse{}}
		second := &rig{Fixture: f, Budgets: budget.New(f.Second(), budget.Options{Cached: 2}), t: rt}
		first := newRig(rt, f)
		r := &run{T: rt, m: m, f: f, on: []*rig{first, second}}
		for _, name := range []string{"org", "org/a", "org/b", "x", "win", "win/c"} {
			m.gen++
			b := &modelBudget{parent: parents[name], gen: m.gen, limit: 40}
			w := budget.Window{Kind: budget.Lifetime}
			if name == "win" {
				b.seconds, w = 60, budget.Window{Kind: budget.Fixed, Seconds: 60}
			}
			if b.parent != "" {
				b.parentGen = m.budgets[b.parent].gen
			}
			m.budgets[name] = b
			first.defineIn(name, 40, parents[name], w)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":        r.check,
			"spend":   r.spend,
			"spend2":  r.spend,
			"refund":  r.refund,
			"hold":    r.hold,
			"hold2":   r.hold,
			"capture": r.capture,
			"void":    r.void,
			"extend":  r.extend,
			"fence":   r.fence,
			"settle":  r.settleFenced,
			"define":  r.define,
			"close":   r.close,
			"advance": r.advance,
		})
	})
}
