package server

import (
	"context"
	"net/http"
	"time"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/challenge"
	"github.com/counterfoil/counterfoil/state"
)

// challengeRoutes are the gate before a key is released.
func (s *Server) challengeRoutes() []Route {
	return []Route{
		handle(Route{
			Method: http.MethodPost, Path: "/v1/challenges", Doc: "Issues a fresh nonce for a job, bound to the present epoch.",
			Statuses: []int{http.StatusCreated},
			Codes:    with(begins, api.ChallengePending, api.ChallengeConsumed, api.ChallengeExpired),
		}, s.issueChallenge),
		handle(Route{
			Method: http.MethodGet, Path: "/v1/challenges/{job_id}", Doc: "Shows how the challenge of a job stands, without its nonce.",
			Codes: []api.Code{api.ChallengeUnknown},
		}, s.readChallenge),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/challenges/{job_id}/consume", Doc: "Uses a challenge up: exactly one caller ever gets the answer.",
			Codes: with(begins, api.ChallengeUnknown, api.ChallengeConsumed, api.ChallengeMismatch, api.EpochStale, api.ChallengeExpired),
		}, s.consumeChallenge),
		handle(Route{
			Method: http.MethodGet, Path: "/v1/epoch", Doc: "Shows the present epoch.",
		}, s.readEpoch),
		handle(Route{
			Method: http.MethodPost, Path: "/v1/epoch/advance", Doc: "Advances the epoch by one and so ends every pending challenge.",
			Codes: with(begins, api.EpochConflict),
		}, s.advanceEpoch),
	}
}

func (s *Server) issueChallenge(ctx context.Context, who *access.Principal, req *api.IssueRequest) (int, *api.IssueAnswer, error) {
	issued, err := s.core.Challenges.Issue(ctx, challenge.IssueParams{
		Scope: who.Scope, Owner: who.Owner, Job: challenge.Job(bytes32(req.JobID)),
		TTL: req.TTL.Duration(), Supersede: req.Supersede, Token: tokenOf(req.Token),
	})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, &api.IssueAnswer{
		JobID: api.DigestOf(issued.Job), Nonce: api.DigestOf(issued.Nonce), Epoch: api.Epoch(issued.Epoch),
		ExpiresAt: timeOf(issued.ExpiresAt), AAD: issued.AAD(), Repeated: issued.Repeated,
	}, nil
}

func (s *Server) readChallenge(ctx context.Context, who *access.Principal, req *api.ChallengeRequest) (int, *api.Challenge, error) {
	c, err := s.core.Challenges.Lookup(ctx, challenge.LookupParams{Scope: who.Scope, Owner: who.Owner, Job: challenge.Job(bytes32(req.JobID))})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.Challenge{
		JobID: api.DigestOf(c.Job), State: string(c.State), Epoch: api.Epoch(c.Epoch), IssuedAt: timeOf(c.IssuedAt), ExpiresAt: timeOf(c.ExpiresAt),
	}, nil
}

func (s *Server) consumeChallenge(ctx context.Context, who *access.Principal, req *api.ConsumeChallengeRequest) (int, *api.ConsumeChallengeAnswer, error) {
	done, err := s.core.Challenges.Consume(ctx, challenge.ConsumeParams{
		Scope: who.Scope, Owner: who.Owner, Job: challenge.Job(bytes32(req.JobID)), Nonce: challenge.Nonce(bytes32(req.Nonce)),
		Epoch: uint64(req.Epoch), Token: tokenOf(req.Token),
	})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.ConsumeChallengeAnswer{Consumed: true, ConsumedAt: timeOf(done.ConsumedAt), Repeated: done.Repeated}, nil
}

func (s *Server) readEpoch(ctx context.Context, who *access.Principal, _ *api.None) (int, *api.EpochAnswer, error) {
	e, err := s.core.Challenges.Epoch(ctx, challenge.EpochParams{Scope: who.Scope})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.EpochAnswer{Epoch: api.Epoch(e.Epoch)}, nil
}

func (s *Server) advanceEpoch(ctx context.Context, who *access.Principal, req *api.AdvanceRequest) (int, *api.EpochAnswer, error) {
	e, err := s.core.Challenges.AdvanceEpoch(ctx, challenge.AdvanceParams{Scope: who.Scope, From: uint64(req.From), Token: tokenOf(req.Token)})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.EpochAnswer{Epoch: api.Epoch(e.Epoch), Repeated: e.Repeated}, nil
}

// bytes32 and tokenOf read what the decoder has judged: an absent value is zero, any other is well-formed.
func bytes32(d api.Digest) [32]byte {
	sum, _ := d.Bytes()
	return sum
}

func tokenOf(t api.Token) state.Token {
	token, _ := t.Bytes()
	return token
}

func timeOf(at time.Time) api.Time { return api.TimeOf(at.UnixMilli()) }
