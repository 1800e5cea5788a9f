package challenge

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/state"
)

// IssueParams asks for a challenge.
type IssueParams struct {
	Scope string
	Owner string // who may look it up, consume and supersede it
	Job   Job
	TTL   time.Duration // 1 s to 24 h; 0 means [DefaultTTL]
	// Supersede replaces the owner's own pending challenge, whose nonce is dead from then on.
	Supersede bool
	// Token, drawn at random before the first send, makes the request recognisable: sent again with it, it gives the same
	// challenge for as long as that is pending, and never another. Zero: drawn here.
	Token state.Token
}

// Issued is a challenge with its nonce, which nothing else gives.
type Issued struct {
	Job       Job
	Nonce     Nonce
	Epoch     uint64
	IssuedAt  time.Time
	ExpiresAt time.Time
	Repeated  bool // this same token had been issued it before
}

// AAD returns the bytes to bind a sealed key to. See the function [AAD].
func (i Issued) AAD() []byte { return AAD(i.Epoch, i.Job, i.Nonce) }

// Issue gives a job a challenge with a fresh nonce and the scope's present epoch, if and only if the job has none that is
// pending or consumed. One that expired, or is of an older epoch, does not stand in the way, and its nonce never works
// again.
//
// Of any number of concurrent callers one is issued the challenge; the others get [ErrAlreadyPending]. Besides: a consumed
// job is [ErrAlreadyConsumed], a token whose own challenge is over is [ErrExpired], and the store's errors pass through, among them [state.ErrRecovering], [state.ErrFull] and
// [state.ErrOwnerFull].
func (c *Challenges) Issue(ctx context.Context, p IssueParams) (Issued, error) {
	i, err := c.issuing(p)
	if err != nil {
		return Issued{}, err
	}
	for range tries {
		op, err := i.op(ctx)
		if err != nil {
			return Issued{}, err
		}
		out, err := c.store.Do(ctx, &state.Batch{Scope: p.Scope, Ops: []state.Op{op}, Read: []state.Key{state.ScopeKey(p.Scope)}})
		if err != nil {
			return Issued{}, failed(err)
		}
		if out.Repeated && out.Anchor.State == state.Settled {
			return Issued{}, ErrAlreadyConsumed
		}
		if out.Repeated && over(out.Anchor, out.Records[0].Scope(), out.Now) {
			return Issued{}, ErrExpired
		}
		if out.Applied || out.Repeated {
			return issued(p.Job, &out)
		}
		if err := i.refused(&out); err != nil {
			return Issued{}, err
		}
	}
	return Issued{}, contended()
}

// issuing is one call of Issue.
type issuing struct {
	*Challenges
	IssueParams
	nonce  Nonce
	digest state.Digest
	// over says that the pending record that was found is over, so that it can be claimed over.
	over bool
}

func (c *Challenges) issuing(p IssueParams) (*issuing, error) {
	if p.TTL == 0 {
		p.TTL = DefaultTTL
	}
	if p.TTL < MinTTL || p.TTL > MaxTTL {
		return nil, invalidf("a TTL is 1 s to 24 h")
	}
	if err := checkCaller(p.Scope, p.Owner); err != nil {
		return nil, err
	}
	i := &issuing{Challenges: c, IssueParams: p, digest: issueDigest(p)}
	if err := c.store.Fill(i.nonce[:]); err != nil {
		return nil, failed(err)
	}
	if p.Token.IsZero() {
		token, err := c.store.Token()
		if err != nil {
			return nil, failed(err)
		}
		i.Token = token
	}
	return i, nil
}

// issueDigest tells requests apart that carry the same token.
func issueDigest(p IssueParams) state.Digest {
	how := binary.BigEndian.AppendUint64(nil, uint64(p.TTL.Milliseconds())) //nolint:gosec // checked to be positive.
	if p.Supersede {
		how = append(how, 's')
	}
	return ids.Hash("counterfoil.challenge-issue.v1", p.Owner, string(how))
}

// op is the Claim of a new record, or the Update of the owner's own that is superseded.
func (i *issuing) op(ctx context.Context) (state.Op, error) {
	now, err := i.store.Now(ctx)
	if err != nil {
		return nil, failed(err)
	}
	key, expires := keyOf(i.Scope, i.Job), now+i.TTL.Milliseconds()
	if i.Supersede && !i.over {
		recs, err := i.store.Read(ctx, key)
		if err != nil {
			return nil, failed(err)
		}
		if r := recs[0]; r != nil && i.supersedes(r) {
			return state.Update{
				Key: key, Token: r.Token, NewToken: i.Token, IfVersion: r.Version, Given: i.digest,
				Expires: expires, Body: pendingBody(i.nonce),
			}, nil
		}
	}
	return state.Claim{
		Key: key, Owner: i.Owner, Token: i.Token, Digest: i.digest, State: state.Pending,
		Body: pendingBody(i.nonce), Expires: expires,
	}, nil
}

// supersedes reports whether r is to be replaced. The record of a Claim with this same token is not: the Claim again is
// recognised as its repetition.
func (i *issuing) supersedes(r *state.Record) bool {
	return r.State == state.Pending && r.Owner == i.Owner && (r.Token != i.Token || r.Given == i.digest)
}

// refused gives the error of a refusal, or nil to try again.
func (i *issuing) refused(out *state.Outcome) error {
	r := out.Refusals[0]
	switch r.Reason {
	case state.Exists:
		if r.Record.State == state.Settled {
			return ErrAlreadyConsumed
		}
		if i.over {
			i.over = false // somebody else was faster; it is superseded in its turn
			return nil
		}
		if i.Supersede && r.Record.Owner == i.Owner && r.Record.Token != i.Token {
			return nil
		}
		return ErrAlreadyPending
	case state.Expired:
		if r.Record != nil && r.Record.Token == i.Token {
			return ErrExpired
		}
		i.over = r.Record != nil // else the new one's own time was over before it was decided
		return nil
	case state.Changed, state.NotHolder, state.NotPending, state.Absent:
		return nil
	}
	return refused(out)
}

func issued(job Job, out *state.Outcome) (Issued, error) {
	r := out.Anchor
	nonce, err := nonceOf(r)
	if err != nil {
		return Issued{}, err
	}
	return Issued{
		Job: job, Nonce: nonce, Epoch: r.Epoch, IssuedAt: at(r.Updated), ExpiresAt: at(r.Expires), Repeated: out.Repeated,
	}, nil
}
