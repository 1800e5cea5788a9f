package client

import (
	"context"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/challenge"
)

// Issue gives a job a challenge; see [challenge.Challenges.Issue]. Scope and Owner of the parameters are the caller's.
func (c *Caller) Issue(ctx context.Context, p challenge.IssueParams) (challenge.Issued, error) {
	mine, err := c.token(p.Token)
	if err != nil {
		return challenge.Issued{}, err
	}
	var a api.IssueAnswer
	req := api.IssueRequest{JobID: api.DigestOf(p.Job), TTL: seconds(p.TTL), Supersede: p.Supersede, Token: wireToken(mine)}
	if err := c.post(ctx, aboutChallenge, "/v1/challenges", &req, &a); err != nil {
		return challenge.Issued{}, err
	}
	nonce, ok := a.Nonce.Bytes()
	if !ok || a.JobID != req.JobID {
		return challenge.Issued{}, strange(aboutChallenge)
	}
	return challenge.Issued{Job: p.Job, Nonce: nonce, Epoch: uint64(a.Epoch), ExpiresAt: a.ExpiresAt.Time(), Repeated: a.Repeated}, nil
}

// Lookup tells how the challenge of a job stands; see [challenge.Challenges.Lookup].
func (c *Caller) Lookup(ctx context.Context, p challenge.LookupParams) (challenge.Challenge, error) {
	var a api.Challenge
	if err := c.get(ctx, aboutChallenge, "/v1/challenges/"+string(api.DigestOf(p.Job)), nil, &a); err != nil {
		return challenge.Challenge{}, err
	}
	if a.State == "" {
		return challenge.Challenge{}, strange(aboutChallenge)
	}
	return challenge.Challenge{
		Job: p.Job, State: challenge.State(a.State), Epoch: uint64(a.Epoch), IssuedAt: a.IssuedAt.Time(), ExpiresAt: a.ExpiresAt.Time(),
	}, nil
}

// ConsumeChallenge uses a challenge up; see [challenge.Challenges.Consume].
func (c *Caller) ConsumeChallenge(ctx context.Context, p challenge.ConsumeParams) (challenge.Consumed, error) {
	mine, err := c.token(p.Token)
	if err != nil {
		return challenge.Consumed{}, err
	}
	var a api.ConsumeChallengeAnswer
	req := api.ConsumeChallengeRequest{Nonce: api.DigestOf(p.Nonce), Epoch: api.Epoch(p.Epoch), Token: wireToken(mine)}
	if err := c.post(ctx, aboutChallenge, "/v1/challenges/"+string(api.DigestOf(p.Job))+"/consume", &req, &a); err != nil {
		return challenge.Consumed{}, err
	}
	if !a.Consumed {
		return challenge.Consumed{}, strange(aboutChallenge)
	}
	return challenge.Consumed{ConsumedAt: a.ConsumedAt.Time(), Repeated: a.Repeated}, nil
}

// Epoch tells the scope's present epoch.
func (c *Caller) Epoch(ctx context.Context) (challenge.Epoch, error) {
	var a api.EpochAnswer
	if err := c.get(ctx, aboutChallenge, "/v1/epoch", nil, &a); err != nil {
		return challenge.Epoch{}, err
	}
	return epoch(&a)
}

// AdvanceEpoch makes the epoch From + 1; see [challenge.Challenges.AdvanceEpoch]. The epoch that stood in the way is read
// apart, with [Caller.Epoch].
func (c *Caller) AdvanceEpoch(ctx context.Context, p challenge.AdvanceParams) (challenge.Epoch, error) {
	mine, err := c.token(p.Token)
	if err != nil {
		return challenge.Epoch{}, err
	}
	var a api.EpochAnswer
	if err := c.post(ctx, aboutChallenge, "/v1/epoch/advance", &api.AdvanceRequest{From: api.Epoch(p.From), Token: wireToken(mine)}, &a); err != nil {
		return challenge.Epoch{}, err
	}
	return epoch(&a)
}

func epoch(a *api.EpochAnswer) (challenge.Epoch, error) {
	if a.Epoch == 0 {
		return challenge.Epoch{}, strange(aboutChallenge)
	}
	return challenge.Epoch{Epoch: uint64(a.Epoch), Repeated: a.Repeated}, nil
}
