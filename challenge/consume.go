package challenge

import (
	"context"
	"crypto/subtle"
	"encoding/binary"
	"time"

	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
)

// ConsumeParams shows the nonce of a challenge.
type ConsumeParams struct {
	Scope string
	Owner string // who was issued it
	Job   Job
	Nonce Nonce
	Epoch uint64 // that the caller takes to be the present one
	// Token, drawn at random before the first send, makes the request recognisable: sent again with it, nonce and epoch,
	// it gives the same answer. Zero: drawn here.
	Token state.Token
}

// Consumed is the one use of a challenge.
type Consumed struct {
	ConsumedAt time.Time
	Repeated   bool // this same token had consumed it before
}

// Consume uses a challenge up if and only if it is the owner's, not consumed, its nonce is the given one, its epoch and
// the given one are the scope's, and its time is not over. The nonces are compared in constant time. Of any number of
// concurrent callers, in any number of processes, exactly one gets the result; with its token it gets it again.
//
// The refusals are, in this order, [ErrUnknownJob], [ErrAlreadyConsumed], [ErrMismatch], [ErrStaleEpoch] and [ErrExpired].
// They change nothing. In a scope in quarantine what is not consumed is [state.ErrRecovering].
func (c *Challenges) Consume(ctx context.Context, p ConsumeParams) (Consumed, error) {
	if err := checkCaller(p.Scope, p.Owner); err != nil {
		return Consumed{}, err
	}
	if p.Epoch == 0 || p.Epoch > state.MaxAmount {
		return Consumed{}, invalidf("an epoch is 1 to 2^53−1")
	}
	if p.Token.IsZero() {
		token, err := c.store.Token()
		if err != nil {
			return Consumed{}, failed(err)
		}
		p.Token = token
	}
	for range tries {
		batch, err := c.consumption(ctx, &p)
		if err != nil {
			return Consumed{}, err
		}
		out, err := c.store.Do(ctx, batch)
		if err != nil {
			return Consumed{}, failed(err)
		}
		if out.Applied || out.Repeated {
			return Consumed{ConsumedAt: at(out.Anchor.Updated), Repeated: out.Repeated}, nil
		}
		if err := p.refused(&out); err != nil {
			return Consumed{}, err
		}
	}
	return Consumed{}, contended()
}

// consumption builds the batch that consumes the record as it was just read. If the nonce or the epoch is not that
// record's, the batch carries a refusal: it then only finds out, durably, what there is.
func (c *Challenges) consumption(ctx context.Context, p *ConsumeParams) (*state.Batch, error) {
	key := keyOf(p.Scope, p.Job)
	recs, err := c.store.Read(ctx, key)
	if err != nil {
		return nil, failed(err)
	}
	now, err := c.store.Now(ctx)
	if err != nil {
		return nil, failed(err)
	}
	settle := state.Settle{Key: key, Token: p.Token, NewToken: p.Token, Given: p.digest()}
	fits := false
	if r := recs[0]; r != nil && r.Owner == p.Owner && r.State == state.Pending {
		nonce, err := nonceOf(r)
		if err != nil {
			return nil, err
		}
		fits = nonce.equal(p.Nonce) && r.Epoch == p.Epoch
		settle.Token, settle.IfVersion = r.Token, r.Version
		settle.Body, settle.Expires = markerBody(r), max(now+c.keep, r.Expires+r.Expires-r.Updated+2*state.Skew+margin)
	}
	batch := &state.Batch{Scope: p.Scope, Ops: []state.Op{settle}, Read: []state.Key{key, state.ScopeKey(p.Scope)}}
	if !fits {
		batch.Ops = append(batch.Ops, state.Refuse{Reason: state.NotHolder})
	}
	return batch, nil
}

// digest tells what was shown: with a token it tells a repetition.
func (p *ConsumeParams) digest() state.Digest {
	var epoch [8]byte
	binary.BigEndian.PutUint64(epoch[:], p.Epoch)
	return ids.Hash("counterfoil.challenge-consume.v1", []byte(p.Owner), p.Nonce[:], epoch[:])
}

func (n Nonce) equal(o Nonce) bool { return subtle.ConstantTimeCompare(n[:], o[:]) == 1 }

// refused names the first refusal that applies to the record as the deciding step found it; nil means that the record
// changed between the reading and that step, so that a further try can tell.
func (p *ConsumeParams) refused(out *state.Outcome) error {
	r, scope := out.Records[0], out.Records[1].Scope()
	mine := r != nil && r.State != state.Void && r.Owner == p.Owner
	if mine && r.State == state.Settled {
		return ErrAlreadyConsumed
	}
	for _, reason := range []state.Reason{state.Recovering, state.Stale} {
		if _, ok := out.Because(reason); ok {
			return failed(state.RefusalError(reason))
		}
	}
	if !mine {
		return ErrUnknownJob
	}
	nonce, err := nonceOf(r)
	switch {
	case err != nil:
		return err
	case !nonce.equal(p.Nonce):
		return ErrMismatch
	case p.Epoch != scope.Epoch, r.Epoch != scope.Epoch:
		return ErrStaleEpoch
	case over(r, scope, out.Now):
		return ErrExpired
	}
	return nil
}
