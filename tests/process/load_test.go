package process_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/client"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

// load is what callers have asked of a server, and what it has acknowledged.
type load struct {
	t   testing.TB
	all []*client.Caller // of several servers on one store

	mu       sync.Mutex
	granted  map[string]int    // executions of each operation
	recorded map[string]string // receipts that were acknowledged
	begun    int               // answers to begins of any kind
	used     map[string]int    // grants of each permit
	spent    uint64            // acknowledged
	doubtful uint64            // nobody knows
	answers  chan struct{}     // one for each acknowledged receipt, for as long as somebody looks
}

const spendLimit = 1 << 30

func newLoad(t testing.TB, all ...*client.Caller) *load {
	t.Helper()
	_, err := all[0].DefineBudget(t.Context(), budget.Definition{Name: "load", Unit: "calls", Limit: spendLimit, Window: budget.Window{Kind: budget.Lifetime}})
	if err != nil {
		t.Fatal(err)
	}
	return &load{
		t: t, all: all, granted: map[string]int{}, recorded: map[string]string{}, used: map[string]int{}, answers: make(chan struct{}, 1),
	}
}

// run lets callers work, two on each key, until stop is closed, and returns once the last one has its answer.
func (l *load) run(callers int, stop <-chan struct{}) {
	var working sync.WaitGroup
	for i := range callers {
		for j := range 2 {
			working.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
						l.round(l.all[j%len(l.all)], fmt.Sprintf("%d-%d", i, n))
					}
				}
			})
		}
	}
	working.Wait()
}

// ctx outlives the test's own, so that the last answers are still heard.
func (l *load) ctx() context.Context { return context.WithoutCancel(l.t.Context()) }

func (l *load) round(to *client.Caller, name string) {
	l.operate(to, "op-"+name)
	l.spend(to, "spend-"+name)
	l.permit(to, "request-"+name)
}

func (l *load) operate(to *client.Caller, key string) {
	b, err := to.Begin(l.ctx(), counterfoil.BeginParams{Key: key, Fingerprint: counterfoil.Fingerprint{1}})
	l.mu.Lock()
	l.begun++
	if err == nil && b.State == counterfoil.Execute {
		l.granted[key]++
	}
	l.mu.Unlock()
	if err != nil || b.State != counterfoil.Execute {
		return
	}
	body := "receipt of " + key
	if _, err = to.Complete(l.ctx(), counterfoil.CompleteParams{ID: b.ID, Token: b.Token, Receipt: operation.Receipt{Body: []byte(body)}}); err != nil {
		return
	}
	l.mu.Lock()
	l.recorded[key] = body
	l.mu.Unlock()
	select {
	case l.answers <- struct{}{}:
	default:
	}
}

func (l *load) spend(to *client.Caller, id string) {
	s, err := to.Spend(l.ctx(), budget.SpendParams{RequestID: id, Entries: []budget.Entry{{Budget: "load", Amount: 1}}})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && !s.Repeated:
		l.spent++
	case err == nil:
		// The other caller's, or this one's, whose first answer was lost.
		l.doubtful++
	case errors.Is(err, state.ErrUnknown):
		l.doubtful++
	}
}

func (l *load) permit(to *client.Caller, request string) {
	call := permit.Expected{Subject: "s", Capability: "c", Server: "s", Tool: "t", RequestID: request, ParameterHash: fmt.Sprintf("%064d", 0)}
	a, err := to.Authorize(l.ctx(), counterfoil.AuthorizeParams{Call: call})
	if err != nil {
		return
	}
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() {
			if _, err := l.all[i%len(l.all)].Consume(l.ctx(), counterfoil.ConsumeParams{Permit: a.Permit, Expected: call}); err == nil {
				l.mu.Lock()
				l.used[string(a.Permit)]++
				l.mu.Unlock()
			}
		})
	}
	both.Wait()
}

// check asks a server for everything that was acknowledged, and for what must not be granted again.
func (l *load) check(to *client.Caller) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.recorded) == 0 || l.spent == 0 || len(l.used) == 0 {
		l.t.Fatalf("nothing was acknowledged: %d receipts of %d begins, %d spends, %d permits", len(l.recorded), l.begun, l.spent, len(l.used))
	}
	for key, n := range l.granted {
		if n > 1 {
			l.t.Errorf("%s was granted %d times", key, n)
		}
		b, err := to.Begin(l.ctx(), counterfoil.BeginParams{Key: key, Fingerprint: counterfoil.Fingerprint{1}})
		switch want, ok := l.recorded[key]; {
		case err == nil && b.State == counterfoil.Execute:
			l.t.Errorf("%s was granted before, and is again", key)
		case ok && (err != nil || string(b.Receipt.Body) != want):
			l.t.Errorf("%s: its receipt is lost: %v", key, err)
		}
	}
	for _, n := range l.used {
		if n > 1 {
			l.t.Errorf("a permit was granted %d times", n)
		}
	}
	b, err := to.Budget(l.ctx(), "load")
	if err != nil {
		l.t.Fatal(err)
	}
	if b.Spent < l.spent || b.Spent > l.spent+l.doubtful {
		l.t.Errorf("the budget has spent %d; acknowledged were %d, and %d are not known", b.Spent, l.spent, l.doubtful)
	}
	l.t.Logf("%d receipts of %d begins, %d spends and %d in doubt, %d permits", len(l.recorded), l.begun, l.spent, l.doubtful, len(l.used))
}

// after waits until so many more receipts are acknowledged.
func (l *load) after(receipts int) {
	l.t.Helper()
	for range receipts {
		select {
		case <-l.answers:
		case <-l.t.Context().Done():
			l.t.Fatal("the load has come to a halt")
		}
	}
}
