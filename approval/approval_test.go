package approval_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/engine/enginetest"
	"github.com/counterfoil/counterfoil/engine/memory"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// desk is a fixture with approvals on its store.
type desk struct {
	*storetest.Fixture
	*approval.Approvals
	t *testing.T
}

// each runs a test on every engine.
func each(t *testing.T, test func(t *testing.T, d *desk)) {
	t.Helper()
	t.Parallel()
	storetest.Each(t, func(t *testing.T, f *storetest.Fixture) {
		test(t, &desk{Fixture: f, Approvals: approval.New(f.Store), t: t})
	})
}

const arguments = `{"to":"bob","cents":500}`

func askParams(change ...func(*approval.AskParams)) approval.AskParams {
	p := approval.AskParams{
		Scope: storetest.Scope, Owner: "alice", Arguments: []byte(arguments), TTL: time.Hour,
		Call: approval.Call{Subject: "alice", Capability: "pay", Server: "bank", Tool: "transfer@0123", RequestID: "order-1"},
	}
	for _, c := range change {
		c(&p)
	}
	p.Call.ParameterHash, _ = permit.ParameterHash(p.Arguments)
	return p
}

func (d *desk) ask(change ...func(*approval.AskParams)) approval.Answer {
	d.t.Helper()
	a, err := d.Ask(context.Background(), askParams(change...))
	if err != nil {
		d.t.Fatalf("Ask: %v", err)
	}
	return a
}

func decideParams(id string) approval.DecideParams {
	return approval.DecideParams{Scope: storetest.Scope, ID: id, By: "operator", Note: "looks right"}
}

// mint stands for what mints permits: it gives one that says how often it was asked.
func (d *desk) mint() func(approval.Call) (*approval.Permit, error) {
	n := 0
	return func(c approval.Call) (*approval.Permit, error) {
		n++
		return &approval.Permit{
			Wire: fmt.Appendf(nil, `{"permit":%d,"tool":%q}`, n, c.Tool), Expires: d.Clock.Now().Add(5 * time.Minute),
			Refusal: func(*state.Outcome, int) error { return nil },
		}, nil
	}
}

func (d *desk) grant(id string) approval.Decided {
	d.t.Helper()
	done, err := d.Grant(context.Background(), decideParams(id), d.mint())
	if err != nil {
		d.t.Fatalf("Grant: %v", err)
	}
	return done
}

func (d *desk) wantState(want approval.State, a approval.Answer) {
	d.t.Helper()
	if a.State != want || (want == approval.Granted) != (len(a.Permit) > 0) {
		d.t.Errorf("the request is %s with permit %q, want %s", a.State, a.Permit, want)
	}
}

func TestARequestWaitsUntilItIsGrantedAndThenGivesItsPermit(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		first := d.ask()
		d.wantState(approval.Pending, first)
		again := d.ask()
		d.wantState(approval.Pending, again)
		if !first.Fresh || again.Fresh || first.ID != again.ID || !first.ExpiresAt.Equal(again.ExpiresAt) {
			t.Errorf("asked twice: %+v, %+v", first, again)
		}
		done := d.grant(first.ID)
		if done.State != approval.Granted || done.Repeated || done.DecidedBy != "operator" || done.Note != "looks right" || !done.DecidedAt.Equal(d.Clock.Now()) {
			t.Errorf("granted: %+v", done)
		}
		granted := d.ask()
		d.wantState(approval.Granted, granted)
		if string(granted.Permit) != `{"permit":1,"tool":"transfer@0123"}` || granted.Note != "looks right" {
			t.Errorf("the owner gets %+v", granted)
		}
	})
}

func TestTheSameDecisionAgainIsRepeatedWithTheFirstPermit(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		id := d.ask().ID
		mint := d.mint()
		for n := range 3 {
			done, err := d.Grant(context.Background(), decideParams(id), mint)
			if err != nil || done.Repeated != (n > 0) {
				t.Fatalf("grant %d: %+v, %v", n, done, err)
			}
		}
		if got := string(d.ask().Permit); got != `{"permit":1,"tool":"transfer@0123"}` {
			t.Errorf("the permit is %s", got)
		}
	})
}

func TestTheOtherDecisionIsRefused(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		granted, denied := d.ask().ID, d.ask(func(p *approval.AskParams) { p.Call.RequestID = "order-2" }).ID
		d.grant(granted)
		if _, err := d.Deny(context.Background(), decideParams(denied)); err != nil {
			t.Fatal(err)
		}
		var was *approval.DecidedError
		if _, err := d.Deny(context.Background(), decideParams(granted)); !errors.Is(err, approval.ErrDecided) || !errors.Is(err, approval.ErrNotPending) || !errors.As(err, &was) || was.State != approval.Granted {
			t.Errorf("Deny after a grant: %v", err)
		}
		if _, err := d.Grant(context.Background(), decideParams(denied), d.mint()); !errors.Is(err, approval.ErrDecided) {
			t.Errorf("Grant after a denial: %v", err)
		}
	})
}

func TestADeniedCallStaysDeniedForADay(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		id := d.ask().ID
		if _, err := d.Deny(context.Background(), decideParams(id)); err != nil {
			t.Fatal(err)
		}
		d.Clock.Advance(approval.DeniedFor - time.Second)
		d.wantState(approval.Denied, d.ask())
		d.Clock.Advance(2 * time.Second)
		again := d.ask()
		d.wantState(approval.Pending, again)
		if !again.Fresh {
			t.Error("a day later it is the same request")
		}
	})
}

func TestWhatNobodyDecidedInTimeIsAskedForAnew(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		id := d.ask().ID
		d.Clock.Advance(time.Hour)
		if _, err := d.Grant(context.Background(), decideParams(id), d.mint()); !errors.Is(err, approval.ErrExpired) {
			t.Errorf("Grant after the time: %v", err)
		}
		if _, err := d.Deny(context.Background(), decideParams(id)); !errors.Is(err, approval.ErrNotPending) || errors.Is(err, approval.ErrDecided) {
			t.Errorf("Deny after the time: %v", err)
		}
		if q, err := d.Get(context.Background(), approval.GetParams{Scope: storetest.Scope, ID: id}); err != nil || q.State != approval.Expired {
			t.Errorf("Get: %+v, %v", q, err)
		}
		again := d.ask()
		d.wantState(approval.Pending, again)
		d.grant(again.ID)
		d.wantState(approval.Granted, d.ask())
	})
}

func TestAGrantIsOverWithItsPermit(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		ctx := context.Background()
		id := d.ask().ID
		d.grant(id)
		d.Clock.Advance(5 * time.Minute)
		// Nothing can be decided about it any more, and who granted it is still told.
		q, err := d.Get(ctx, approval.GetParams{Scope: storetest.Scope, Owner: "alice", ID: id})
		if err != nil || q.State != approval.Expired || q.DecidedBy != "operator" || string(q.Arguments) != `{"cents":500,"to":"bob"}` {
			t.Errorf("Get: %+v, %v", q, err)
		}
		if _, err := d.Get(ctx, approval.GetParams{Scope: storetest.Scope, Owner: "mallory", ID: id}); !errors.Is(err, approval.ErrNotFound) {
			t.Errorf("Get of another owner's: %v", err)
		}
		_, grant := d.Grant(ctx, decideParams(id), d.mint())
		_, deny := d.Deny(ctx, decideParams(id))
		if !errors.Is(grant, approval.ErrExpired) || !errors.Is(deny, approval.ErrExpired) {
			t.Errorf("Grant: %v; Deny: %v", grant, deny)
		}
		if page, err := d.List(ctx, approval.ListParams{Scope: storetest.Scope, State: approval.Expired}); err != nil || len(page.Requests) != 1 || page.Damaged != nil {
			t.Errorf("List: %+v, %v", page, err)
		}
		d.wantState(approval.Pending, d.ask())
	})
}

func TestAnythingElseNeedsAnApprovalOfItsOwn(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.grant(d.ask().ID)
		for name, change := range map[string]func(*approval.AskParams){
			"owner":      func(p *approval.AskParams) { p.Owner = "mallory" },
			"subject":    func(p *approval.AskParams) { p.Call.Subject = "mallory" },
			"capability": func(p *approval.AskParams) { p.Call.Capability = "refund" },
			"server":     func(p *approval.AskParams) { p.Call.Server = "other" },
			"tool":       func(p *approval.AskParams) { p.Call.Tool = "transfer@4567" },
			"request id": func(p *approval.AskParams) { p.Call.RequestID = "order-2" },
			"arguments":  func(p *approval.AskParams) { p.Arguments = []byte(`{"to":"bob","cents":501}`) },
			"boundary":   func(p *approval.AskParams) { p.Call.Subject, p.Call.Capability = "alicep", "ay" },
		} {
			if a := d.ask(change); a.State != approval.Pending || a.Permit != nil || !a.Fresh {
				t.Errorf("another %s: %+v", name, a)
			}
		}
		// The same in another spelling is the same.
		d.wantState(approval.Granted, d.ask(func(p *approval.AskParams) { p.Arguments = []byte(`{ "cents": 5e2, "to": "\u0062ob" }`) }))
	})
}

func TestOfManyWhoDecideOneDecides(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		id := d.ask().ID
		second := approval.New(d.Second())
		var mu sync.Mutex
		var granted, denied, repeated int
		var wg sync.WaitGroup
		for n := range 16 {
			wg.Go(func() {
				at := d.Approvals
				if n%4 > 1 {
					at = second
				}
				var done approval.Decided
				var err error
				if n%2 == 0 {
					done, err = at.Grant(context.Background(), decideParams(id), d.mint())
				} else {
					done, err = at.Deny(context.Background(), decideParams(id))
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, approval.ErrDecided):
				case err != nil:
					t.Errorf("decide: %v", err)
				case done.Repeated:
					repeated++
				case done.State == approval.Granted:
					granted++
				default:
					denied++
				}
			})
		}
		wg.Wait()
		if granted+denied != 1 || repeated != 7 {
			t.Errorf("%d granted, %d denied, %d repeated; want one decision and 7 repetitions", granted, denied, repeated)
		}
	})
}

func TestAnotherOwnersRequestIsNotThere(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		id := d.ask().ID
		theirs := decideParams(id)
		theirs.Owner = "mallory"
		if _, err := d.Deny(context.Background(), theirs); !errors.Is(err, approval.ErrNotFound) {
			t.Errorf("Deny: %v", err)
		}
		if _, err := d.Grant(context.Background(), theirs, d.mint()); !errors.Is(err, approval.ErrNotFound) {
			t.Errorf("Grant: %v", err)
		}
		if _, err := d.Get(context.Background(), approval.GetParams{Scope: storetest.Scope, Owner: "mallory", ID: id}); !errors.Is(err, approval.ErrNotFound) {
			t.Errorf("Get: %v", err)
		}
		page, err := d.List(context.Background(), approval.ListParams{Scope: storetest.Scope, Owner: "mallory"})
		if err != nil || len(page.Requests) != 0 {
			t.Errorf("List: %+v, %v", page, err)
		}
		d.wantState(approval.Pending, d.ask())
	})
}

func TestAListShowsEachRequestOnce(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		for n := range 7 {
			id := d.ask(func(p *approval.AskParams) { p.Call.RequestID = fmt.Sprint(n) }).ID
			if n == 3 {
				d.grant(id)
			}
		}
		seen := map[string]bool{}
		for cursor, more := "", true; more; {
			page, err := d.List(context.Background(), approval.ListParams{Scope: storetest.Scope, State: approval.Pending, Cursor: cursor, Limit: 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range page.Requests {
				if seen[q.ID] || q.State != approval.Pending || string(q.Arguments) != `{"cents":500,"to":"bob"}` {
					t.Errorf("listed: %+v", q)
				}
				seen[q.ID] = true
			}
			cursor, more = page.Next, page.Next != ""
		}
		if len(seen) != 6 {
			t.Errorf("%d requests are pending, want 6", len(seen))
		}
	})
}

func TestADamagedRequestIsNeverAbsentNorGranted(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		id := d.ask().ID
		raw := strings.Builder{}
		for n := 0; n < len(id); n += 2 {
			var b byte
			if _, err := fmt.Sscanf(id[n:n+2], "%02x", &b); err != nil {
				t.Fatal(err)
			}
			raw.WriteByte(b)
		}
		d.Damage(state.Key{Scope: storetest.Scope, Kind: state.KindApproval, ID: raw.String()})
		if _, err := d.Ask(context.Background(), askParams()); !errors.Is(err, state.ErrCorrupt) {
			t.Errorf("Ask: %v", err)
		}
		if _, err := d.Grant(context.Background(), decideParams(id), d.mint()); !errors.Is(err, state.ErrCorrupt) {
			t.Errorf("Grant: %v", err)
		}
		page, err := d.List(context.Background(), approval.ListParams{Scope: storetest.Scope})
		if err != nil || len(page.Damaged) != 1 || page.Damaged[0] != id {
			t.Errorf("List: %+v, %v", page, err)
		}
	})
}

func TestInQuarantineNothingIsAskedForNorDecided(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		ctx := context.Background()
		other := func(p *approval.AskParams) { p.Call.RequestID = "order-2" }
		waiting, granted := d.ask().ID, d.ask(other).ID
		d.grant(granted)
		d.Quarantine()
		_, asked := d.Ask(ctx, askParams(func(p *approval.AskParams) { p.Call.RequestID = "order-3" }))
		_, grant := d.Grant(ctx, decideParams(waiting), d.mint())
		_, deny := d.Deny(ctx, decideParams(waiting))
		for what, err := range map[string]error{"Ask": asked, "Grant": grant, "Deny": deny} {
			if !errors.Is(err, state.ErrRecovering) {
				t.Errorf("%s: %v", what, err)
			}
		}
		// What stood before is told as it stood.
		d.wantState(approval.Pending, d.ask())
		d.wantState(approval.Granted, d.ask(other))
		if done, err := d.Grant(ctx, decideParams(granted), d.mint()); err != nil || !done.Repeated {
			t.Errorf("Grant of what was granted before: %+v, %v", done, err)
		}
	})
}

func TestWhatIsOverIsSweptAndMakesRoom(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		ctx := context.Background()
		d.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 6, 3 })
		calls := []func(*approval.AskParams){
			func(p *approval.AskParams) { p.Call.RequestID = "undecided" },
			func(p *approval.AskParams) { p.Call.RequestID = "granted" },
			func(p *approval.AskParams) { p.Call.RequestID = "denied" },
		}
		ids := []string{d.ask(calls[0]).ID, d.ask(calls[1]).ID, d.ask(calls[2]).ID}
		d.grant(ids[1])
		if _, err := d.Deny(ctx, decideParams(ids[2])); err != nil {
			t.Fatal(err)
		}
		more := func(n int) error {
			_, err := d.Ask(ctx, askParams(func(p *approval.AskParams) { p.Call.RequestID = fmt.Sprint("more-", n) }))
			return err
		}
		left := func(after time.Duration, want ...error) {
			t.Helper()
			d.Clock.Advance(after)
			if _, err := d.Store.Sweep(ctx); err != nil {
				t.Fatal(err)
			}
			for n, id := range ids {
				if _, err := d.Get(ctx, approval.GetParams{Scope: storetest.Scope, ID: id}); !errors.Is(err, want[n]) {
					t.Errorf("%s is left with %v, want %v", id, err, want[n])
				}
			}
		}
		// The permit of the granted one lives for 5 min, the undecided one waits for 1 h, the denied one stays for a day.
		left(6*time.Minute, nil, nil, nil)
		left(20*time.Minute, nil, approval.ErrNotFound, nil)
		if err := more(1); err != nil {
			t.Errorf("after the first is swept: %v", err)
		}
		if err := more(2); !errors.Is(err, state.ErrOwnerFull) {
			t.Errorf("without room: %v", err)
		}
		left(time.Hour, approval.ErrNotFound, approval.ErrNotFound, nil)
		left(24*time.Hour, approval.ErrNotFound, approval.ErrNotFound, approval.ErrNotFound)
		if err := more(3); err != nil {
			t.Errorf("with room: %v", err)
		}
	})
}

func TestADecisionIsTakenOnceWhateverIsLost(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]enginetest.Failure{
		"the request was lost": enginetest.LoseRequest, "the reply was lost": enginetest.LoseReply,
		"out of reach": enginetest.Refuse, "contended": enginetest.Contend, "the request comes in late": enginetest.Delay,
	} {
		for times := 1; times <= 3; times++ {
			t.Run(fmt.Sprintf("%s/%d times", name, times), func(t *testing.T) {
				t.Parallel()
				decidedDespite(t, failure, times)
			})
		}
	}
}

// decidedDespite grants through faults, again until it is answered, and wants one permit of it all.
func decidedDespite(t *testing.T, failure enginetest.Failure, times int) {
	c := clock.NewManual(storetest.Start)
	faults := enginetest.Faulty(memory.New(c))
	options := store.Options{Keys: storetest.Keys(t), Clock: c, Entropy: entropy.Seeded(1)}
	if err := store.Create(t.Context(), faults, options); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), faults, options)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{Fixture: &storetest.Fixture{Store: s, Clock: c}, Approvals: approval.New(s), t: t}
	id, mint, n := d.ask().ID, d.mint(), 0
	faults.Plan(func(string, int) enginetest.Failure {
		if n++; n > times {
			return enginetest.None
		}
		return failure
	})
	seen := map[string]bool{}
	for range 6 {
		if _, err = d.Grant(t.Context(), decideParams(id), mint); err == nil {
			seen[string(d.ask().Permit)] = true
		} else if !errors.Is(err, state.ErrUnknown) && !errors.Is(err, state.ErrUnavailable) {
			t.Fatalf("a fault reads as %v", err)
		}
		if _, late := faults.Deliver(t.Context()); late != nil {
			t.Fatal(late)
		}
	}
	if err != nil || len(seen) != 1 {
		t.Fatalf("at last %v, with permits %v; want one", err, seen)
	}
	if _, err := d.Deny(t.Context(), decideParams(id)); !errors.Is(err, approval.ErrDecided) {
		t.Errorf("the other decision: %v", err)
	}
}

func TestAFullStoreRefusesRequests(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.Caps(func(c *state.Caps) { c.Live, c.OwnerLive = 2, 1 })
		d.ask()
		if _, err := d.Ask(context.Background(), askParams(func(p *approval.AskParams) { p.Call.RequestID = "order-2" })); !errors.Is(err, state.ErrOwnerFull) {
			t.Errorf("another of the same owner: %v", err)
		}
		d.wantState(approval.Pending, d.ask())
	})
}

func TestWhatIsNeverAcceptedIsRefusedBeforeAnything(t *testing.T) {
	t.Parallel()
	d := approval.New(storetest.Memory(t).Store)
	for name, change := range map[string]func(*approval.AskParams){
		"a wait that is too short":     func(p *approval.AskParams) { p.TTL = time.Second },
		"a wait that is too long":      func(p *approval.AskParams) { p.TTL = 25 * time.Hour },
		"no owner":                     func(p *approval.AskParams) { p.Owner = "" },
		"no subject":                   func(p *approval.AskParams) { p.Call.Subject = "" },
		"no request id":                func(p *approval.AskParams) { p.Call.RequestID = "" },
		"a tool with a line feed":      func(p *approval.AskParams) { p.Call.Tool = "a\nb" },
		"arguments that are no JSON":   func(p *approval.AskParams) { p.Arguments = []byte(`{`) },
		"arguments with a double name": func(p *approval.AskParams) { p.Arguments = []byte(`{"a":1,"a":2}`) },
		"large arguments": func(p *approval.AskParams) {
			p.Arguments = []byte(`"` + strings.Repeat("x", approval.MaxArguments) + `"`)
		},
	} {
		if _, err := d.Ask(context.Background(), askParams(change)); !errors.Is(err, approval.ErrInvalid) || !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	lying := askParams()
	lying.Arguments = []byte(`{"to":"mallory","cents":500}`)
	if _, err := d.Ask(context.Background(), lying); !errors.Is(err, approval.ErrInvalid) {
		t.Errorf("arguments of another call than the hash's: %v", err)
	}
	for name, change := range map[string]func(*approval.DecideParams){
		"no id":                   func(p *approval.DecideParams) { p.ID = "" },
		"an id in capitals":       func(p *approval.DecideParams) { p.ID = strings.ToUpper(p.ID) },
		"nobody who decides":      func(p *approval.DecideParams) { p.By = "" },
		"a note with an escape":   func(p *approval.DecideParams) { p.Note = "\x1b[2J" },
		"a note that is too long": func(p *approval.DecideParams) { p.Note = strings.Repeat("x", approval.MaxNote+1) },
	} {
		p := decideParams(approval.ID("alice", askParams().Call))
		change(&p)
		if _, err := d.Deny(context.Background(), p); !errors.Is(err, approval.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.Deny(context.Background(), decideParams(approval.ID("alice", askParams().Call))); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("what nobody asked for: %v", err)
	}
}

func TestDeepArgumentsAreKeptAsTheyAre(t *testing.T) {
	each(t, deepArguments)
}

func deepArguments(t *testing.T, d *desk) {
	deep := strings.Repeat("[", 60) + "null" + strings.Repeat("]", 60)
	change := func(p *approval.AskParams) { p.Arguments = []byte(deep) }
	d.grant(d.ask(change).ID)
	a := d.ask(change)
	d.wantState(approval.Granted, a)
	if string(a.Arguments) != deep {
		t.Errorf("kept: %s", a.Arguments)
	}
}
