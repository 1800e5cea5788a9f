package httpguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/canonical"
)

// Meter is what a call takes from a budget if that depends on the call. The figure comes from exactly one of Request,
// Response and Usage. If several meters of a route name the same budget, their amounts are added.
type Meter struct {
	Budget string
	// Request is a JSON pointer (RFC 6901) to an integer in the body of the request. The amount is known before the call,
	// and taken with the claim.
	Request string
	// Response is a JSON pointer to an integer in the answer. Hold is held before the call, and the amount captured after.
	Response string
	// Usage is the form in which the answer of a language model says how many tokens it took, as JSON or as a stream of
	// events. Hold is held before the call, and the amount captured after.
	Usage Usage
	Count Count    // which tokens of a Usage; "": Total
	Times uint64   // units of the budget that one of the figure costs; 0: 1
	Hold  Estimate // of the figure, before Times
}

// Usage is a form in which an answer says how many tokens it took.
type Usage string

// The forms of usage.
const (
	// OpenAI is that of chat completions (prompt_tokens, completion_tokens) and of responses (input_tokens, output_tokens).
	OpenAI Usage = "openai"
	// Anthropic is that of messages. Tokens that went into a cache or came from it count as input.
	Anthropic Usage = "anthropic"
)

// Count says which tokens a [Meter] counts.
type Count string

// What can be counted.
const (
	Total  Count = "total"
	Input  Count = "input"
	Output Count = "output"
)

// Estimate bounds a figure that only the answer tells: Base + Factor × the integer in the request + PerByte × the length of
// the request's body. A call that takes more than its estimate is charged if that fits the budgets; else the rest is
// logged and counted.
type Estimate struct {
	Base uint64
	// Fields are JSON pointers to integers in the body of the request, such as /max_tokens. The largest of those that are
	// there counts.
	Fields []string
	// Otherwise stands for a request that has none of the Fields; 0: it is refused.
	Otherwise uint64
	Factor    uint64 // 0: 1
	PerByte   uint64
}

// MaxMeters is how many meters a route can have.
const MaxMeters = 16

// before reports whether the amount is known before the call.
func (m *Meter) before() bool { return m.Request != "" }

func (m *Meter) times() uint64 { return max(m.Times, 1) }

// check refuses what could not be metered.
func (m *Meter) check(streams bool) error {
	sources := 0
	for _, named := range []bool{m.Request != "", m.Response != "", m.Usage != ""} {
		if named {
			sources++
		}
	}
	estimated := m.Hold.Base > 0 || len(m.Hold.Fields) > 0 || m.Hold.PerByte > 0
	switch {
	case m.Budget == "":
		return errors.New("a meter names the budget that it takes from")
	case sources != 1:
		return errors.New("a meter has its figure from one of request, response and usage")
	case m.Usage != "" && m.Usage != OpenAI && m.Usage != Anthropic:
		return errors.New("usage is openai or anthropic: another form cannot be metered")
	case m.Usage == "" && m.Count != "" || m.Count != "" && m.Count != Total && m.Count != Input && m.Count != Output:
		return errors.New("a usage counts total, input or output tokens")
	case m.before() && (estimated || m.Hold.Otherwise > 0 || m.Hold.Factor > 0):
		return errors.New("an amount that the request says is not held: leave out hold")
	case !m.before() && !estimated:
		return errors.New("an amount that only the answer says needs hold: what to hold until then")
	case m.Response != "" && streams:
		return errors.New("a stream of events cannot be metered by a JSON pointer: leave out record_final, or meter its usage")
	case slices.Max([]uint64{m.Times, m.Hold.Base, m.Hold.Otherwise, m.Hold.Factor, m.Hold.PerByte}) > budget.MaxAmount:
		return errors.New("a number of a meter is above 2^53-1")
	}
	for _, pointer := range slices.DeleteFunc(append([]string{m.Request, m.Response}, m.Hold.Fields...), func(p string) bool { return p == "" }) {
		if err := checkPointer(pointer); err != nil {
			return err
		}
	}
	return nil
}

// meters are those of a policy.
type meters []Meter

func (list meters) check(streams bool) error {
	if len(list) > MaxMeters {
		return fmt.Errorf("a route has at most %d meters", MaxMeters)
	}
	for i := range list {
		if err := list[i].check(streams); err != nil {
			return fmt.Errorf("meter %d: %w", i+1, err)
		}
		if list[i].Usage != "" && list[i].Usage != list.usage() {
			return errors.New("the answers of a route tell their usage in one form")
		}
	}
	return nil
}

// usage is the form in which answers tell their usage, "" if none is asked for.
func (list meters) usage() Usage {
	for i := range list {
		if list[i].Usage != "" {
			return list[i].Usage
		}
	}
	return ""
}

// reads reports whether a meter needs the body of the request.
func (list meters) reads() bool {
	return slices.ContainsFunc(list, func(m Meter) bool { return m.Request != "" || len(m.Hold.Fields) > 0 })
}

// amounts are what the meters of a call take: exactly that which is known before it, and at most the estimates.
type amounts struct {
	exact     []counterfoil.Entry
	estimates []counterfoil.Entry // one for each meter whose amount is not known before
}

// before gives what a call takes, as far as its request tells.
func (list meters) before(media string, body []byte, streams bool) (a amounts, refused *api.Problem) {
	var doc any
	if list.reads() || list.usage() != "" {
		var err error
		doc, err = decode(body)
		if err != nil && (list.reads() || media == "application/json") { // else it asks for no stream: files to be transcribed, say
			return a, api.NewProblem(api.Malformed, "the cost of the request cannot be told from its body: "+err.Error())
		}
	}
	if p := list.stream(doc, streams); p != nil {
		return a, p
	}
	for i := range list {
		m := &list[i]
		for _, pointer := range append([]string{m.Request}, m.Hold.Fields...) {
			if pointer != "" && respelled(doc, pointer) {
				return a, unmetered("the route is metered: a member that differs in letter case alone has two readings", pointer)
			}
		}
		if m.before() {
			figure, ok := integer(doc, m.Request)
			if !ok {
				return a, unmetered("the route is metered by an integer in the body, which must be there", m.Request)
			}
			amount, ok := product(figure, m.times())
			if !ok {
				return a, unmetered("the amount is above what a budget can count", m.Request)
			}
			a.exact = append(a.exact, counterfoil.Entry{Budget: m.Budget, Amount: amount})
			continue
		}
		amount, p := m.estimate(doc, len(body))
		if p != nil {
			return a, p
		}
		a.estimates = append(a.estimates, counterfoil.Entry{Budget: m.Budget, Amount: amount})
	}
	return a, nil
}

// stream refuses a request for a stream that the route does not record, or that does not tell its usage.
func (list meters) stream(doc any, streams bool) *api.Problem {
	if list.usage() == "" || !truth(doc, "/stream") {
		return nil
	}
	if !streams {
		return unmetered("the route cannot be answered by a stream of events", "/stream")
	}
	if _, chat := at(doc, "/messages"); list.usage() == OpenAI && chat && !truth(doc, "/stream_options/include_usage") {
		return unmetered("the route is metered: a stream must tell its usage, so set it to true", "/stream_options/include_usage")
	}
	return nil
}

func (m *Meter) estimate(doc any, length int) (uint64, *api.Problem) {
	figure, present := uint64(0), false
	for _, pointer := range m.Hold.Fields {
		value, there := at(doc, pointer)
		if !there || value == nil {
			continue
		}
		n, ok := integer(doc, pointer)
		if !ok {
			return 0, unmetered("the route is metered: want an integer that is not negative", pointer)
		}
		figure, present = max(figure, n), true
	}
	if !present {
		figure = m.Hold.Otherwise
	}
	if figure == 0 && !present && len(m.Hold.Fields) > 0 {
		return 0, unmetered("the route is metered: what the call may cost must be in the body", m.Hold.Fields[0])
	}
	scaled, ok1 := product(figure, max(m.Hold.Factor, 1))
	bytes, ok2 := product(uint64(length), m.Hold.PerByte) //nolint:gosec // a length is not negative
	sum, ok3 := total(m.Hold.Base, scaled, bytes)
	amount, ok4 := product(sum, m.times())
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return 0, unmetered("the estimated amount is above what a budget can count", "")
	}
	return amount, nil
}

// after gives what to capture once the answer is there, and names the budgets whose figure it does not tell: of those the
// whole estimate is captured.
func (list meters) after(estimates []counterfoil.Entry, answer *answer) (capture []counterfoil.Entry, untold []string) {
	told := figuresOf(list.usage(), answer)
	n := 0
	for i := range list {
		m := &list[i]
		if m.before() {
			continue
		}
		entry := estimates[n]
		n++
		figure, ok := told.figure(m)
		amount, fits := product(figure, m.times())
		if ok && fits {
			entry.Amount = amount
		} else {
			untold = append(untold, m.Budget)
		}
		capture = append(capture, entry)
	}
	sum, err := budget.Sum(capture)
	if err != nil {
		sum, _ = budget.Sum(estimates) // it has been held
		untold = budgetsOf(sum)
	}
	return sum, untold
}

func budgetsOf(entries []counterfoil.Entry) []string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Budget
	}
	return names
}

// unmetered is the problem of a request whose cost cannot be told.
func unmetered(detail, pointer string) *api.Problem {
	p := api.NewProblem(api.Invalid, detail+"; nothing was done")
	p.Pointer = pointer
	return p
}

// decode reads a strict JSON document, numbers as they are canonically written.
func decode(text []byte) (any, error) {
	strict, err := canonical.Transform(nil, text)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(strict))
	decoder.UseNumber()
	var doc any
	err = decoder.Decode(&doc)
	return doc, err
}

// integer finds an integer from 0 to 2^53-1 at a pointer.
func integer(doc any, pointer string) (uint64, bool) {
	value, found := at(doc, pointer)
	number, ok := value.(json.Number)
	if !found || !ok || strings.ContainsAny(number.String(), ".eE-") {
		return 0, false
	}
	n, err := strconv.ParseUint(number.String(), 10, 64)
	return n, err == nil && n <= budget.MaxAmount
}

// respelled reports whether an object on the way to a pointer has a member whose name differs from that of the way in letter
// case alone: some readers take it for the same.
func respelled(doc any, pointer string) bool {
	for _, step := range steps(pointer) {
		in, ok := doc.(map[string]any)
		if !ok {
			doc, ok = at(doc, "/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
			if !ok {
				return false
			}
			continue
		}
		for name := range in {
			if name != step && strings.EqualFold(name, step) {
				return true
			}
		}
		if doc, ok = in[step]; !ok {
			return false
		}
	}
	return false
}

func truth(doc any, pointer string) bool {
	value, found := at(doc, pointer)
	yes, ok := value.(bool)
	return found && ok && yes
}

// product and total calculate in the range that a budget counts; false beyond it.
func product(a, b uint64) (uint64, bool) {
	if b != 0 && a > budget.MaxAmount/b {
		return 0, false
	}
	return a * b, true
}

func total(terms ...uint64) (sum uint64, ok bool) {
	for _, n := range terms {
		if n > budget.MaxAmount-sum {
			return 0, false
		}
		sum += n
	}
	return sum, true
}
