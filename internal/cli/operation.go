package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/api"
)

func (a *app) operationCommand() *cobra.Command {
	return group("operation", "Effects that must not happen twice, each named by a key",
		a.operationBegin(), a.operationRenew(), a.operationComplete(), a.operationAbort(), a.operationResolve(), a.operationShow(), a.operationList())
}

func (a *app) operationBegin() *cobra.Command {
	var req api.BeginRequest
	var fingerprint, request, metadata, holdID string
	var shown permitFlags
	var spend amounts
	c := a.asking("begin KEY", "Claim an operation: execute once, or get the receipt", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) (err error) {
		if req.Key, err = name("KEY", c.args[0]); err != nil {
			return err
		}
		if req.Request, err = c.jsonValue("--request", request); err != nil {
			return err
		}
		if req.Metadata, err = c.jsonValue("--metadata", metadata); err != nil {
			return err
		}
		req.Fingerprint, req.HoldID, req.Spend = api.Digest(fingerprint), api.Digest(holdID), spend.list
		if (fingerprint == "") == (request == "") {
			return badValue("say what is to be done: --request JSON, or its --fingerprint")
		}
		if shown.path != "" {
			if req.Permit, req.Expected, err = shown.read(c.app); err != nil {
				return err
			}
		}
		if req.Token, err = drawToken(); err != nil {
			return err
		}
		var ans api.BeginAnswer
		if err := at.post(ctx, "/v1/operations", &req, &ans); err != nil {
			return err
		}
		return c.showBegun(&ans)
	})
	f := c.Flags()
	f.StringVar(&fingerprint, "fingerprint", "", "SHA-256 of what is to be done, in `hex`")
	f.StringVar(&request, "request", "", "what is to be done, in `JSON`; @FILE reads it from a file, - from stdin")
	f.StringVar(&metadata, "metadata", "", "a `JSON` object that is kept with the operation")
	f.StringVar(&holdID, "hold-id", "", "`id` of a hold to take over")
	secondsFlag(f, &req.Lease, "lease", "how long it may take until it is renewed or completed, 1s to 1h; without it 30s")
	f.Var(&spend, "spend", "what to spend in the same step, again for each budget")
	shown.bind(f)
	return c
}

func (c *call) showBegun(ans *api.BeginAnswer) error {
	if c.json {
		return c.printJSON(ans)
	}
	o := &ans.Operation
	if ans.State == api.StateExecute {
		_, err := fmt.Fprintf(c.Out, "execute\nid           %s\ntoken        %s\nfence        %d\nlease until  %s\n", o.ID, o.Token, o.Fence, o.LeaseUntil)
		return err
	}
	if _, err := fmt.Fprintf(c.Out, "replay\nid            %s\ncompleted at  %s\n", o.ID, o.CompletedAt); err != nil {
		return err
	}
	return c.showReceipt(ans.Receipt)
}

// showReceipt prints a receipt for people.
func (c *call) showReceipt(r *api.Receipt) error {
	if r == nil {
		return nil
	}
	if r.Status != 0 {
		fmt.Fprintf(c.Out, "status  %d\n", r.Status)
	}
	if r.ContentType != "" {
		fmt.Fprintf(c.Out, "type    %s\n", r.ContentType)
	}
	body := []byte(r.Body)
	if r.Body64 != nil {
		body, _ = base64.StdEncoding.DecodeString(*r.Body64)
	}
	if len(body) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(c.Out, "body    %d bytes\n%s\n", len(body), body)
	return err
}

// operationPath is the path of the operation that the first argument names.
func (c *call) operationPath(after string) (string, error) {
	id, err := digest("ID", c.args[0])
	return "/v1/operations/" + string(id) + after, err
}

// heldFlags are the flags of who holds an operation.
type heldFlags struct{ tokenFile string }

func (h *heldFlags) bind(c *cobra.Command) {
	c.Flags().StringVar(&h.tokenFile, "token-file", "", "`file` with the token that begin answered, - for stdin")
}

func (h *heldFlags) token(a *app) (t api.Token, err error) {
	if h.tokenFile == "" {
		return "", badValue("--token-file is missing: name the file with the token that begin answered, - for stdin")
	}
	text, err := a.secret(h.tokenFile)
	if err != nil {
		return "", err
	}
	if err := t.UnmarshalText([]byte(text)); err != nil {
		return "", badValue("--token-file: %w", err)
	}
	return t, nil
}

func (a *app) operationRenew() *cobra.Command {
	var req api.RenewRequest
	var held heldFlags
	c := a.asking("renew ID", "Prolong the lease of an operation that is being executed", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		path, err := c.operationPath("/renew")
		if err != nil {
			return err
		}
		if req.Token, err = held.token(c.app); err != nil {
			return err
		}
		if req.Lease == 0 {
			req.Lease = 30
		}
		var ans api.RenewAnswer
		if err := at.post(ctx, path, &req, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "lease until %s", ans.LeaseUntil)
	})
	held.bind(c)
	secondsFlag(c.Flags(), &req.Lease, "lease", "how long from now on, 1s to 1h; without it 30s")
	return c
}

func (a *app) operationComplete() *cobra.Command {
	var held heldFlags
	var given receiptFlags
	c := a.asking("complete ID", "Record what an operation came to, and charge its hold", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		path, err := c.operationPath("/complete")
		if err != nil {
			return err
		}
		var req api.CompleteRequest
		if req.Token, err = held.token(c.app); err != nil {
			return err
		}
		if req.Receipt, err = given.receipt(c.app); err != nil {
			return err
		}
		if req.Capture, err = given.captured(); err != nil {
			return err
		}
		var ans api.CompleteAnswer
		if err := at.post(ctx, path, &req, &ans); err != nil {
			return err
		}
		if ans.HoldUnsettled {
			c.note("the receipt is recorded, but the hold could not be settled: its amounts stay held")
		}
		for _, e := range ans.Uncaptured {
			c.note(fmt.Sprintf("not charged, since it exceeded the hold and the budget: %s=%d", e.Budget, e.Amount))
		}
		return c.answer(&ans, "recorded; replayed until %s", ans.ReceiptExpiresAt)
	})
	held.bind(c)
	given.bind(c.Flags())
	return c
}

func (a *app) operationAbort() *cobra.Command {
	var req api.AbortRequest
	var held heldFlags
	c := a.asking("abort ID", "Give an operation back whose effect provably did not happen", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		path, err := c.operationPath("/abort")
		if err != nil {
			return err
		}
		if req.Token, err = held.token(c.app); err != nil {
			return err
		}
		var ans api.AbortAnswer
		if err := at.post(ctx, path, &req, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "aborted; the key is free")
	})
	held.bind(c)
	c.Flags().StringVar(&req.Reason, "reason", "", "how it is known that it did not happen; kept with the operation")
	return c
}

func (a *app) operationResolve() *cobra.Command {
	var req api.ResolveRequest
	var given receiptFlags
	c := a.asking("resolve ID", "Decide an operation whose outcome is unknown, once it is known; make sure first that its holder is dead",
		cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
			path, err := c.operationPath("/resolve")
			if err != nil {
				return err
			}
			if req.Outcome != api.Happened && req.Outcome != api.DidNotHappen {
				return badValue("--outcome: want happened or did_not_happen")
			}
			if req.Note == "" {
				return badValue("--note is missing: say how it was found out")
			}
			if given.given() {
				if req.Receipt, err = given.receipt(c.app); err != nil {
					return err
				}
			}
			if req.Capture, err = given.captured(); err != nil {
				return err
			}
			var ans api.ResolveAnswer
			if err := at.post(ctx, path, &req, &ans); err != nil {
				return err
			}
			return c.answer(&ans, "%s", ans.State)
		})
	c.Flags().StringVar(&req.Outcome, "outcome", "", "happened or did_not_happen")
	c.Flags().StringVar(&req.Note, "note", "", "how it was found out; kept with the operation")
	given.bind(c.Flags())
	return c
}

func (a *app) operationShow() *cobra.Command {
	return a.asking("show ID", "Show how an operation stands, with its receipt", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		path, err := c.operationPath("")
		if err != nil {
			return err
		}
		var o api.Operation
		if err := at.get(ctx, path, nil, &o); err != nil {
			return err
		}
		if c.json {
			return c.printJSON(&o)
		}
		fmt.Fprintf(c.Out, "%s\nid          %s\nkey         %s\nowner       %s\ncreated at  %s\n", o.State, o.ID, o.Key, o.Owner, o.CreatedAt)
		if o.LeaseUntil != (api.Time{}) {
			fmt.Fprintf(c.Out, "lease until %s\n", o.LeaseUntil)
		}
		if r := o.Resolved; r != nil {
			fmt.Fprintf(c.Out, "resolved    %s by %s at %s: %s\n", r.Outcome, r.By, r.At, oneLine(r.Note))
		}
		return c.showReceipt(o.Receipt)
	})
}

func (a *app) operationList() *cobra.Command {
	var list listFlags
	var state string
	c := a.asking("list", "List operations; those of unknown outcome by the end of their lease", cobra.NoArgs, func(ctx context.Context, c *call, at *reached) error {
		q := list.query()
		if state != "" {
			q.Set("state", state)
		}
		if c.config.Owner != "" {
			q.Set("owner", c.config.Owner)
		}
		var ans api.OperationList
		if err := at.get(ctx, "/v1/operations", q, &ans); err != nil {
			return err
		}
		if c.json {
			return c.printJSON(&ans)
		}
		for _, id := range ans.Damaged {
			c.note("damaged, its state is not known: " + string(id))
		}
		c.more(ans.NextCursor)
		return c.table("STATE\tOWNER\tKEY\tCREATED\tID", func(w *tabwriter.Writer) {
			for _, o := range ans.Items {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", o.State, o.Owner, o.Key, o.CreatedAt, o.ID)
			}
		})
	})
	list.bind(c.Flags())
	c.Flags().StringVar(&state, "state", "", "in_flight, outcome_unknown, settled, expired or aborted")
	return c
}
