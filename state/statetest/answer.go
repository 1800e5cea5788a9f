package statetest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/counterfoil/counterfoil/state"
)

// Answer is an outcome with all that depends on who asked and when it was
// committed left out, so that a model's and a store's can be compared.
type Answer struct {
	Err      error // one of the sentinels of package state, or nil
	Applied  bool
	Repeated bool
	Refusals []Refused
	Anchor   *Seen
	Records  []*Seen
	Figures  []*state.Figures
	Values   []uint64
	Skipped  []bool
	Extra    bool
}

// Refused is one refusal.
type Refused struct {
	Op      int
	Reason  state.Reason
	Value   uint64
	Record  *Seen
	Figures *state.Figures
}

// Seen is a record as an answer shows it.
type Seen struct {
	State                           state.State
	Tomb                            bool
	Token                           state.Token
	Owner                           string
	Digest, Given                   state.Digest
	Created, Expires, Retain, Lease int64
	Fence, Epoch, Generation, Value uint64
	Body                            string
	Kept                            *state.Kept
	Scope                           state.Scope
	ownerTag                        state.OwnerTag
}

// sentinels are the errors of batches that got no outcome and wrote nothing.
var sentinels = []error{state.ErrInvalid, state.ErrCorrupt, state.ErrKeyUnknown, state.ErrNoScope, state.ErrClock, state.ErrUnavailable, state.ErrLatched, state.ErrUnknown}

// AnswerOf reads what a store, or Decide, gave.
func AnswerOf(out state.Outcome, err error) Answer {
	if err != nil {
		for _, s := range sentinels {
			if errors.Is(err, s) {
				return Answer{Err: s}
			}
		}
		return Answer{Err: err}
	}
	a := Answer{Applied: out.Applied, Repeated: out.Repeated, Extra: out.Extra, Anchor: see(out.Anchor)}
	for _, r := range out.Refusals {
		a.Refusals = append(a.Refusals, Refused{r.Op, r.Reason, r.Value, see(r.Record), r.Figures})
	}
	for _, r := range out.Records {
		a.Records = append(a.Records, see(r))
	}
	if out.Applied {
		a.Figures, a.Values, a.Skipped = out.Figures, out.Values, out.Skipped
	}
	return a
}

func see(r *state.Record) *Seen {
	if r == nil {
		return nil
	}
	s := &Seen{
		State: r.State, Tomb: r.Tomb, Token: r.Token, Owner: r.Owner, Digest: r.Digest, Given: r.Given, Created: r.Created, Expires: r.Expires,
		Retain: r.Retain, Lease: r.Lease, Fence: r.Fence, Epoch: r.Epoch, Generation: r.Generation, Value: r.Value, Body: string(r.Body),
		ownerTag: r.OwnerTag,
	}
	if r.Result != nil {
		k, err := state.DecodeResult(r.Result)
		if err != nil {
			return &Seen{Body: "a kept outcome that cannot be read: " + err.Error()}
		}
		s.Kept = &k
	}
	if r.Scope() != nil {
		s.Scope = *r.Scope()
	}
	return s
}

// Diff says what differs between the answer that was given and the one that
// was wanted, "" if nothing does.
func Diff(got, want Answer) string {
	var b strings.Builder
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if x, y := g.Field(i).Interface(), w.Field(i).Interface(); !reflect.DeepEqual(x, y) {
			fmt.Fprintf(&b, "%s is %s, want %s\n", g.Type().Field(i).Name, Show(x), Show(y))
		}
	}
	return b.String()
}

// Show prints a value with what its pointers point to, fields of value zero left
// out.
func Show(v any) string {
	return strings.ReplaceAll(showValue(reflect.ValueOf(v)), "statetest.", "")
}

func showValue(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "nil"
		}
		return "&" + showValue(v.Elem())
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = showValue(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.Struct:
		var parts []string
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() {
				parts = append(parts, v.Type().Field(i).Name+":"+showValue(f))
			}
		}
		return "{" + strings.Join(parts, " ") + "}"
	case reflect.Interface:
		return v.Elem().Type().Name() + showValue(v.Elem())
	case reflect.String:
		return fmt.Sprintf("%q", v.String())
	case reflect.Array:
		return fmt.Sprintf("%x", v)
	default:
		return fmt.Sprintf("%v", v)
	}
}
