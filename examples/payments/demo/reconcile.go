package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/operation"
)

// result is the balance at the end.
type result struct {
	once, twice, refused, unknown, happened, didNot int
	spent                                           uint64
	kills                                           int64
}

// reconcile does what an operator does: for every operation whose outcome is
// unknown it asks the ledger, and says what it found out.
func (s *stage) reconcile(ctx context.Context, n *counts) (*result, error) {
	// Nobody may still be charging when the ledger is asked.
	s.api.end(syscall.SIGTERM)
	if err := s.api.start(); err != nil {
		return nil, err
	}
	r := &result{kills: n.kills.Load()}
	if err := s.awaitLeases(ctx); err != nil {
		return nil, err
	}
	if err := s.resolveAll(ctx, r); err != nil {
		return nil, err
	}
	charges, err := s.charges(ctx, "")
	if err != nil {
		return nil, err
	}
	byOrder := map[string]int{}
	for _, order := range charges {
		byOrder[order]++
	}
	for _, times := range byOrder {
		if r.once++; times > 1 {
			r.twice++
		}
	}
	r.refused = orders - r.once - r.didNot
	b, err := s.caller.Budget(ctx, name)
	r.spent = b.Spent
	return r, err
}

// awaitLeases waits until no operation is in flight any more.
func (s *stage) awaitLeases(ctx context.Context) error {
	for {
		page, err := s.caller.Operations(ctx, operation.ListParams{State: operation.InFlight, Limit: 1})
		if err == nil && len(page.Operations) == 0 && page.Next == "" {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return errors.New("operations stay in flight")
		}
	}
}

func (s *stage) resolveAll(ctx context.Context, r *result) error {
	for cursor := ""; ; {
		page, err := s.caller.Operations(ctx, operation.ListParams{State: operation.OutcomeUnknown, Limit: 100, Cursor: cursor})
		if err != nil {
			return err
		}
		for _, o := range page.Operations {
			if err := s.resolve(ctx, o, r); err != nil {
				return fmt.Errorf("resolve %s: %w", o.Key, err)
			}
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}

func (s *stage) resolve(ctx context.Context, o operation.Operation, r *result) error {
	r.unknown++
	charges, err := s.charges(ctx, o.Key)
	if err != nil {
		return err
	}
	p := counterfoil.ResolveParams{ID: o.ID, Outcome: operation.DidNotHappen, Note: "the ledger has no such charge"}
	r.didNot++
	if len(charges) > 0 {
		r.didNot--
		r.happened++
		p.Outcome, p.Note = operation.Happened, "found in the ledger"
		p.Receipt = operation.Receipt{Status: http.StatusCreated}
	}
	_, err = s.caller.Resolve(ctx, p)
	return err
}

// charges asks the ledger for the orders that were charged.
func (s *stage) charges(ctx context.Context, order string) ([]string, error) {
	for {
		list, err := s.askLedger(ctx, order)
		if err == nil || !pause(ctx, 100*time.Millisecond) {
			return list, err
		}
	}
}

func (s *stage) askLedger(ctx context.Context, order string) ([]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.apiURL+"/charges?order="+url.QueryEscape(order), nil)
	if err != nil {
		return nil, err
	}
	answer, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the ledger answered %d", answer.StatusCode)
	}
	var lines []struct {
		Order string `json:"order"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&lines); err != nil {
		return nil, err
	}
	list := make([]string, len(lines))
	for i, l := range lines {
		list[i] = l.Order
	}
	return list, nil
}

func (r *result) String() string {
	var b strings.Builder
	line := func(what string, n any) { fmt.Fprintf(&b, "%-28s %v\n", what, n) }
	b.WriteString("\n")
	line("orders", orders)
	line("killed on the way", r.kills)
	line("charged once", r.once-r.twice)
	line("charged twice", r.twice)
	line("refused by budget", r.refused)
	line("outcome unknown", fmt.Sprintf("%d: resolved %d happened, %d did not happen", r.unknown, r.happened, r.didNot))
	line("budget spent / ledger", fmt.Sprintf("%d / %d micros; %d fit", r.spent, uint64(r.once)*price, uint64(fitting)*price)) //nolint:gosec // a count.
	return b.String()
}

// check says what went wrong, nil if nothing did.
func (r *result) check() error {
	switch ledger := uint64(r.once) * price; { //nolint:gosec // a count.
	case r.twice != 0:
		return fmt.Errorf("%d orders were charged twice", r.twice)
	case r.spent != ledger:
		return fmt.Errorf("the budget has spent %d, the ledger shows %d", r.spent, ledger)
	case r.spent > fitting*price:
		return fmt.Errorf("the budget is overspent: %d", r.spent)
	case r.once < fitting-r.didNot:
		return fmt.Errorf("only %d orders were charged, although %d fit and %d did not happen", r.once, fitting, r.didNot)
	case r.kills < 3:
		return errors.New("too little was killed to show anything")
	}
	return nil
}
