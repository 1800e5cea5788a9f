package mcpguard

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil"
)

// Keys says where the key of a call comes from that names none.
type Keys string

// What a key can be.
const (
	// Required: a call without a key is refused.
	Required Keys = "required"
	// Derived: a call without a key gets one of its run, its tool and its arguments, so that the same call happens once in
	// a run. A call without a run is refused.
	Derived Keys = "derived"
)

// Record says which results of a tool become receipts. An error of the protocol never does.
type Record string

// The choices.
const (
	// Answers records every result, isError too: the tool has answered.
	Answers Record = "answers"
	// SuccessOnly leaves the outcome open after a result with isError.
	SuccessOnly Record = "success-only"
)

// Policy is how the calls of a tool are guarded. What is zero is taken from the default policy.
type Policy struct {
	// ReadOnly passes calls of the tool as they are.
	ReadOnly bool
	Keys     Keys
	// KeyArgument is a member of the arguments that holds the key, a string; "": none.
	KeyArgument string
	Record      Record
	// NotPerformed are codes of JSON-RPC errors, and statuses of HTTP, by which the server says that the tool has not run
	// and never will for this call. Without them no error of the server is a proof.
	NotPerformed         []int
	NotPerformedStatuses []int
	// Spend is what each call takes from budgets, together with its claim. In a budget's name {agent} stands for the owner,
	// {session} for the run that is configured, {tool} for the name of the tool; a call that lacks one of them is refused.
	Spend []counterfoil.Entry
	// Capability makes the tool ask for a permit bound to this capability: in _meta, or by the approval of an operator.
	Capability string
	// Wait is how long a call waits for another one of its key that is in flight, before it is refused.
	Wait time.Duration
	// Lease is how long after the guard is gone the outcome counts as unknown; it is renewed while the tool works.
	Lease time.Duration
	// Timeout is how long a call may take; then its outcome is unknown.
	Timeout time.Duration
	// ApprovalTTL is how long a call waits for the decision of an operator; 0: 1 h.
	ApprovalTTL time.Duration
}

// The default policy.
const (
	DefaultLease   = 30 * time.Second
	DefaultTimeout = 10 * time.Minute
	MaxWait        = 5 * time.Minute
)

func defaultPolicy() Policy {
	return Policy{Keys: Required, Record: Answers, Lease: DefaultLease, Timeout: DefaultTimeout}
}

// over gives the policy with what it leaves open taken from base.
func (p Policy) over(base *Policy) Policy {
	take(&p.Keys, base.Keys)
	take(&p.KeyArgument, base.KeyArgument)
	take(&p.Record, base.Record)
	take(&p.Capability, base.Capability)
	take(&p.Wait, base.Wait)
	take(&p.Lease, base.Lease)
	take(&p.Timeout, base.Timeout)
	take(&p.ApprovalTTL, base.ApprovalTTL)
	if p.NotPerformed == nil {
		p.NotPerformed = base.NotPerformed
	}
	if p.NotPerformedStatuses == nil {
		p.NotPerformedStatuses = base.NotPerformedStatuses
	}
	if p.Spend == nil {
		p.Spend = base.Spend
	}
	return p
}

func take[T comparable](to *T, from T) {
	var zero T
	if *to == zero {
		*to = from
	}
}

func (p *Policy) check() error {
	switch {
	case p.Keys != Required && p.Keys != Derived:
		return errors.New("keys are required or derived")
	case p.Record != Answers && p.Record != SuccessOnly:
		return errors.New("record is answers or success-only")
	case p.Lease < counterfoil.MinLease || p.Lease > counterfoil.MaxLease:
		return fmt.Errorf("a lease is %s to %s", counterfoil.MinLease, counterfoil.MaxLease)
	case p.Wait < 0 || p.Wait > MaxWait:
		return fmt.Errorf("a call waits for at most %s", MaxWait)
	case p.Timeout < time.Millisecond || p.Timeout > 24*time.Hour:
		return errors.New("a timeout is 1ms to 24h")
	case p.ApprovalTTL != 0 && (p.ApprovalTTL < time.Minute || p.ApprovalTTL > 24*time.Hour || p.ApprovalTTL%time.Second != 0):
		return errors.New("an approval waits for 1m to 24h, in whole seconds")
	case p.ReadOnly && (len(p.Spend) > 0 || p.Capability != ""):
		return errors.New("a tool that is read_only is not guarded: it can neither spend nor ask for an approval")
	case len(p.Spend) > counterfoil.MaxEntries:
		return fmt.Errorf("a call spends from at most %d budgets", counterfoil.MaxEntries)
	}
	for _, status := range p.NotPerformedStatuses {
		if status < 400 || status > 599 {
			return errors.New("a status by which a server refuses is 400 to 599")
		}
	}
	for _, e := range p.Spend {
		if !budgetName.MatchString(everybody.Replace(e.Budget)) {
			return fmt.Errorf("%q is no name of a budget, even with {agent}, {session} and {tool} put in", e.Budget)
		}
	}
	return nil
}

// budgetName matches the name of a budget: 1 to 8 segments.
var budgetName = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,64}(/[A-Za-z0-9._~-]{1,64}){0,7}$`)

// segment matches what may stand in for one segment of a name.
var segment = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,64}$`)

var everybody = strings.NewReplacer("{agent}", "x", "{session}", "x", "{tool}", "x")

// spend gives the budgets of a call. A name that lacks what it asks for is refused, and never becomes a shared one.
func (p *Policy) spend(c *toolCall) ([]counterfoil.Entry, *Refusal) {
	if len(p.Spend) == 0 {
		return nil, nil
	}
	who := map[string]string{"{agent}": c.owner, "{session}": c.run, "{tool}": c.tool}
	var entries []counterfoil.Entry
	for _, e := range p.Spend {
		for _, placeholder := range slices.Sorted(maps.Keys(who)) {
			if !strings.Contains(e.Budget, placeholder) {
				continue
			}
			if !segment.MatchString(who[placeholder]) {
				return nil, invalid("a budget of this tool is named by " + placeholder + ", which this call does not have, or which cannot be part of a budget's name")
			}
			e.Budget = strings.ReplaceAll(e.Budget, placeholder, who[placeholder])
		}
		if !budgetName.MatchString(e.Budget) {
			return nil, invalid("the name of a budget of this tool is too long with this call's identity in it")
		}
		entries = append(entries, e)
	}
	return entries, nil
}
