package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/api"
)

func (a *app) challengeCommand() *cobra.Command {
	return group("challenge", "The gate before a key is released: a fresh nonce for a job, consumed once", a.challengeIssue(), a.challengeConsume(), a.challengeShow())
}

func (a *app) challengeIssue() *cobra.Command {
	var req api.IssueRequest
	c := a.asking("issue JOB", "Issue a fresh nonce for a job, and print it", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) (err error) {
		if req.JobID, err = digest("JOB", c.args[0]); err != nil {
			return err
		}
		if req.Token, err = drawToken(); err != nil {
			return err
		}
		var ans api.IssueAnswer
		if err := at.post(ctx, "/v1/challenges", &req, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "nonce       %s\nepoch       %d\nexpires at  %s", ans.Nonce, ans.Epoch, ans.ExpiresAt)
	})
	secondsFlag(c.Flags(), &req.TTL, "ttl", "how long it may wait to be consumed, 1s to 24h; without it 1h")
	c.Flags().BoolVar(&req.Supersede, "supersede", false, "replace the owner's own pending one, whose nonce is dead then")
	return c
}

func (a *app) challengeConsume() *cobra.Command {
	var req api.ConsumeChallengeRequest
	var nonceFile string
	var epoch uint64
	c := a.asking("consume JOB", "Use a challenge up: exactly one caller ever succeeds", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		job, err := digest("JOB", c.args[0])
		if err != nil {
			return err
		}
		if nonceFile == "" {
			return badValue("--nonce-file is missing: name the file with the nonce, - for stdin")
		}
		text, err := c.secret(nonceFile)
		if err != nil {
			return err
		}
		if req.Nonce, err = digest("--nonce-file", text); err != nil {
			return err
		}
		if epoch == 0 || epoch > api.MaxInteger {
			return badValue("--epoch is missing: give the epoch that the challenge was issued in")
		}
		req.Epoch = api.Epoch(epoch)
		if req.Token, err = drawToken(); err != nil {
			return err
		}
		var ans api.ConsumeChallengeAnswer
		if err := at.post(ctx, "/v1/challenges/"+string(job)+"/consume", &req, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "consumed at %s", ans.ConsumedAt)
	})
	c.Flags().StringVar(&nonceFile, "nonce-file", "", "`file` with the nonce, - for stdin")
	c.Flags().Uint64Var(&epoch, "epoch", 0, "the `epoch` that the caller takes to be the present one")
	return c
}

func (a *app) challengeShow() *cobra.Command {
	return a.asking("show JOB", "Show how the challenge of a job stands, without its nonce", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		job, err := digest("JOB", c.args[0])
		if err != nil {
			return err
		}
		var ans api.Challenge
		if err := at.get(ctx, "/v1/challenges/"+string(job), nil, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "%s\nepoch       %d\nissued at   %s\nexpires at  %s", ans.State, ans.Epoch, ans.IssuedAt, ans.ExpiresAt)
	})
}
