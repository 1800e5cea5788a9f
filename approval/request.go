package approval

import (
	"context"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// AskParams asks for the approval of a call.
type AskParams struct {
	Scope     string
	Owner     string // whose call it is, and who alone gets its permit
	Call      Call
	Arguments []byte        // JSON, whose hash is the call's; at most 64 KiB in canonical form
	TTL       time.Duration // how long it waits for a decision: whole seconds, 1 min to 24 h; 0 means [DefaultTTL]
}

// Answer is where a request stands, for its owner.
type Answer struct {
	Request
	Permit []byte // of a granted one: the wire form
	Fresh  bool   // the request was made now
}

// Ask makes the request for the approval of a call if and only if the owner has none that is pending, granted or denied,
// and tells where it stands, durably. The permit is given once it is granted and for as long as it can be used.
//
// The errors are [ErrInvalid] and those of the store, among them [state.ErrFull] and [state.ErrOwnerFull]. In a scope in
// quarantine none is made ([state.ErrRecovering]).
func (a *Approvals) Ask(ctx context.Context, p AskParams) (Answer, error) {
	if p.TTL == 0 {
		p.TTL = DefaultTTL
	}
	if p.TTL < MinTTL || p.TTL > MaxTTL || p.TTL%time.Second != 0 {
		return Answer{}, invalidf("a request waits for 1 min to 24 h, in whole seconds")
	}
	if err := checkCaller(p.Scope, p.Owner); err != nil {
		return Answer{}, err
	}
	if err := p.Call.check(); err != nil {
		return Answer{}, err
	}
	arguments, err := argumentsOf(&p.Call, p.Arguments)
	if err != nil {
		return Answer{}, err
	}
	key, err := keyOf(p.Scope, ID(p.Owner, p.Call))
	if err != nil {
		return Answer{}, err
	}
	for range tries {
		claim, b, err := a.claim(ctx, &p, key, arguments)
		if err != nil {
			return Answer{}, err
		}
		out, err := a.store.Do(ctx, &state.Batch{Scope: p.Scope, Ops: []state.Op{claim}})
		if err != nil {
			return Answer{}, failed(err)
		}
		if out.Applied || out.Repeated {
			return Answer{Fresh: true, Request: Request{
				ID: ID(p.Owner, p.Call), Owner: p.Owner, Call: p.Call, Arguments: arguments, State: Pending, AskedAt: at(b.Asked), ExpiresAt: at(claim.Expires),
			}}, nil
		}
		if there, ok := out.Because(state.Exists); ok {
			return answer(key, there.Record, out.Now)
		}
		if _, late := out.Because(state.Expired); !late {
			return Answer{}, refused(&out)
		}
	}
	return Answer{}, contended()
}

func (a *Approvals) claim(ctx context.Context, p *AskParams, key state.Key, arguments []byte) (claim state.Claim, b *body, err error) {
	now, err := a.store.Now(ctx)
	if err != nil {
		return claim, nil, failed(err)
	}
	token, err := a.store.Token()
	if err != nil {
		return claim, nil, failed(err)
	}
	b = newBody(&p.Call, arguments, now)
	text, err := b.encode()
	if err != nil {
		return claim, nil, err
	}
	return state.Claim{
		Key: key, Owner: p.Owner, Token: token, State: state.Pending, Body: text, Expires: now + p.TTL.Milliseconds(),
	}, b, nil
}

// answer is what the owner of a live record is told.
func answer(key state.Key, r *state.Record, now int64) (Answer, error) {
	q, b, err := request(key, r, now)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Request: *q}
	if q.State == Granted {
		a.Permit = b.Decision.Permit
	}
	return a, nil
}
