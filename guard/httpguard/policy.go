package httpguard

import (
	"net/http"
	"slices"
	"time"

	"github.com/counterfoil/counterfoil"
)

// Preset says which answers of a handler become receipts.
type Preset string

// The presets. An answer that does not become a receipt leaves the outcome unknown: nobody can tell from it whether the
// effect has happened.
const (
	// Strict records every answer below 500.
	Strict Preset = "strict"
	// Stripe records every answer that the handler gave, 5xx too.
	Stripe Preset = "stripe"
	// SuccessOnly records 2xx alone.
	SuccessOnly Preset = "success-only"
)

func (p Preset) known() bool { return p == Strict || p == Stripe || p == SuccessOnly }

func (p Preset) records(status int) bool {
	switch p {
	case Strict:
		return status >= 200 && status < 500
	case Stripe:
		return status >= 200
	case SuccessOnly:
		return status >= 200 && status < 300
	}
	return false
}

// Keys says what is asked of the key of a guarded request.
type Keys string

// What a key can be.
const (
	// Required: without a key the request is refused.
	Required Keys = "required"
	// Optional: without a key the request is not guarded.
	Optional Keys = "optional"
	// Derived: without a key the fingerprint is the key, so that the same request of the same owner happens once while its
	// receipt is remembered.
	Derived Keys = "derived"
)

func (k Keys) known() bool { return k == Required || k == Optional || k == Derived }

// Policy is how the requests of a route are guarded. What is zero is taken from the default policy.
type Policy struct {
	Methods     []string // that are guarded; others go to the handler as they are
	Keys        Keys
	Record      Preset
	Also        []int // statuses that become receipts although the preset does not say so
	Never       []int // statuses that do not, although it does
	Fingerprint *Fingerprint
	// Wait is how long a request waits for another one of the same key that is in flight, before it is refused.
	Wait time.Duration
	// Lease is how long after the guard is gone the outcome counts as unknown; it is renewed while the handler works.
	Lease time.Duration
	// Timeout ends the context of the handler.
	Timeout time.Duration
	// RecordFinal lets a handler answer by a stream of events: it is collected, recorded, and then given as a whole.
	RecordFinal bool
	// Spend is what each call takes from budgets, together with its claim. What the handler says it did not perform is
	// given back.
	Spend []counterfoil.Entry
	// Meters take from budgets what depends on the call.
	Meters []Meter
	// Free are statuses for which nothing is captured if the answer does not say what it cost. Any other answer that does
	// not say so costs the whole of what was held for it.
	Free []int
	// Capability makes the route ask for a permit in the header Counterfoil-Permit, bound to this capability, to Server, to
	// the owner as its subject, to "METHOD path" as its tool, to the key as its request id, and to [ParameterHash].
	Capability string
	Server     string
}

// The default policy.
const (
	DefaultLease   = 30 * time.Second
	DefaultTimeout = 10 * time.Minute
	MaxWait        = 5 * time.Minute
)

func defaultPolicy() Policy {
	return Policy{
		Methods: []string{http.MethodPost, http.MethodPatch}, Keys: Required, Record: Strict,
		Fingerprint: &Fingerprint{}, Lease: DefaultLease, Timeout: DefaultTimeout,
	}
}

// over gives the policy with what it leaves open taken from base.
func (p Policy) over(base *Policy) Policy {
	if p.Methods == nil {
		p.Methods = base.Methods
	}
	if p.Keys == "" {
		p.Keys = base.Keys
	}
	if p.Record == "" {
		p.Record = base.Record
		p.Also = append(slices.Clone(base.Also), p.Also...)
		p.Never = append(slices.Clone(base.Never), p.Never...)
	}
	if p.Fingerprint == nil {
		p.Fingerprint = base.Fingerprint
	}
	if p.Wait == 0 {
		p.Wait = base.Wait
	}
	if p.Lease == 0 {
		p.Lease = base.Lease
	}
	if p.Timeout == 0 {
		p.Timeout = base.Timeout
	}
	if p.Spend == nil {
		p.Spend = base.Spend
	}
	if p.Meters == nil {
		p.Meters = base.Meters
	}
	if p.Free == nil {
		p.Free = base.Free
	}
	if p.Capability == "" && p.Server == "" {
		p.Capability, p.Server = base.Capability, base.Server
	}
	p.RecordFinal = p.RecordFinal || base.RecordFinal
	return p
}

func (p *Policy) records(status int) bool {
	if slices.Contains(p.Never, status) {
		return false
	}
	return slices.Contains(p.Also, status) || p.Record.records(status)
}

// refusals are the statuses by which middleware refuses a request before it comes to what has the effect.
var refusals = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
}

// releases reports whether a status says that nothing was done, if the request has not come to what has the effect.
func (p *Policy) releases(status int) bool {
	return p.Record == Strict && slices.Contains(refusals, status) && !slices.Contains(p.Also, status) && !slices.Contains(p.Never, status)
}

// Route is a policy for the requests that a pattern of [http.ServeMux] matches.
type Route struct {
	Pattern string
	Policy  Policy
}
