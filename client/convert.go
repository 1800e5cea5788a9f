package client

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

func wireToken(t state.Token) api.Token { return api.Token(hex.EncodeToString(t[:])) }

// givenToken writes a token that may be left out.
func givenToken(t state.Token) api.Token {
	if t == (state.Token{}) {
		return ""
	}
	return wireToken(t)
}

func token(t api.Token) state.Token {
	b, _ := t.Bytes()
	return b
}

// seconds writes a duration for a member that takes whole seconds. A part of one is rounded up: a lease or hold that
// lives a little longer grants nothing to anybody else.
func seconds(d time.Duration) api.Seconds {
	if d != 0 && d < time.Second {
		return -1 // refused by the server
	}
	return api.Seconds((d + time.Second - 1) / time.Second)
}

// wirePermit writes a permit as a member. What is not JSON is sent as a string, which is no permit either: so the server
// judges it in its order, after an existing operation.
func wirePermit(wire []byte) json.RawMessage {
	if wire == nil {
		return nil
	}
	if jsontext.Value(wire).IsValid() {
		return wire
	}
	return canonical.AppendString(nil, "not JSON")
}

func expected(e permit.Expected) api.Expected {
	return api.Expected{
		Subject: api.Name(e.Subject), Capability: api.Name(e.Capability), Server: api.Name(e.Server), Tool: api.Name(e.Tool),
		RequestID: api.Name(e.RequestID), ParameterHash: api.Digest(e.ParameterHash),
	}
}

func entries(list []counterfoil.Entry) []api.Entry {
	if list == nil {
		return nil
	}
	out := make([]api.Entry, len(list))
	for i, e := range list {
		out[i] = api.Entry{Budget: api.BudgetName(e.Budget), Amount: e.Amount}
	}
	return out
}

// capture writes what to charge: absent means in full, empty nothing.
func capture(list *[]counterfoil.Entry) []api.Entry {
	if list == nil {
		return nil
	}
	return append([]api.Entry{}, entries(*list)...)
}

func entriesOf(list []api.Entry) []counterfoil.Entry {
	var out []counterfoil.Entry
	for _, e := range list {
		out = append(out, counterfoil.Entry{Budget: string(e.Budget), Amount: e.Amount})
	}
	return out
}

func limit(l api.Limit) (amount uint64, unlimited bool) {
	amount, _ = l.Amount()
	return amount, l.IsUnlimited()
}

func figures(list []api.Figures) []state.Figures {
	var out []state.Figures
	for i := range list {
		out = append(out, figure(&list[i]))
	}
	return out
}

// figure reads where a budget stands. What does not go over the wire (the amount asked for, when a hold ends, the
// generation) is zero.
func figure(f *api.Figures) state.Figures {
	out := state.Figures{
		Name: string(f.Name), Unit: f.Unit, Spent: f.Spent, Held: f.Held, Lifetime: f.ResetsAt == api.Time{},
		WindowAt: f.WindowStartedAt.UnixMilli(), ResetsAt: f.ResetsAt.UnixMilli(),
	}
	out.Limit, out.Unlimited = limit(f.Limit)
	out.Remaining, _ = limit(f.Remaining)
	if out.Unlimited {
		out.Remaining = state.MaxAmount - min(state.MaxAmount, f.Spent+f.Held)
	}
	return out
}

// wireReceipt writes a receipt: a body that is JSON as JSON, any other in base64.
func wireReceipt(r *operation.Receipt) (*api.Receipt, error) {
	out := &api.Receipt{Status: r.Status, ContentType: r.ContentType}
	for name, values := range r.Headers {
		if out.Headers == nil {
			out.Headers = api.Headers{}
		}
		out.Headers[name] = append(api.HeaderValue{}, values...)
	}
	switch {
	case len(r.Body) == 0 && !r.JSON:
	case r.JSON:
		if !jsontext.Value(r.Body).IsValid() {
			return nil, fmt.Errorf("%w: the receipt's body is not JSON", operation.ErrInvalid)
		}
		out.Body = r.Body
	default:
		text := base64.StdEncoding.EncodeToString(r.Body)
		out.Body64 = &text
	}
	return out, nil
}

// receipt reads a receipt. An empty one may be left out on the wire.
func receipt(r *api.Receipt) (*operation.Receipt, error) {
	out := new(operation.Receipt)
	if r == nil {
		return out, nil
	}
	out.Status, out.ContentType = r.Status, r.ContentType
	for name, values := range r.Headers {
		if out.Headers == nil {
			out.Headers = map[string][]string{}
		}
		out.Headers[name] = values
	}
	switch {
	case r.Body != nil:
		out.Body, out.JSON = r.Body, true
	case r.Body64 != nil:
		body, err := base64.StdEncoding.Strict().DecodeString(*r.Body64)
		if err != nil {
			return nil, strange(aboutOperation)
		}
		out.Body = body
	}
	return out, nil
}
