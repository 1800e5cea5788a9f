package cli

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/counterfoil/counterfoil/api"
)

func (a *app) permitCommand() *cobra.Command {
	return group("permit", "Signed permits, each good for one exact call, once", a.permitMint(), a.permitConsume(), a.permitCheck(), a.permitRevoke())
}

// callFlags are the flags that say which call a permit is for.
type callFlags struct {
	subject, capability, server, tool, requestID string
	arguments, hash                              string
}

func (f *callFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.subject, "subject", "", "`who` makes the call")
	flags.StringVar(&f.capability, "capability", "", "by which `capability`")
	flags.StringVar(&f.server, "tool-server", "", "on which tool `server`")
	flags.StringVar(&f.tool, "tool", "", "which `tool`")
	flags.StringVar(&f.requestID, "request-id", "", "for which request, an `id`")
	flags.StringVar(&f.arguments, "arguments", "", "the call's arguments in `JSON`; @FILE reads them from a file, - from stdin")
	flags.StringVar(&f.hash, "parameter-hash", "", "SHA-256 of the canonical JSON of the arguments, in `hex`, instead of them")
}

func (f *callFlags) expected(a *app) (*api.Expected, error) {
	arguments, err := a.jsonValue("--arguments", f.arguments)
	if err != nil {
		return nil, err
	}
	e := &api.Expected{
		Subject: api.Name(f.subject), Capability: api.Name(f.capability), Server: api.Name(f.server), Tool: api.Name(f.tool),
		RequestID: api.Name(f.requestID), Arguments: arguments, ParameterHash: api.Digest(f.hash),
	}
	for _, m := range []struct{ flag, value string }{
		{"--subject", f.subject}, {"--capability", f.capability}, {"--tool-server", f.server}, {"--tool", f.tool}, {"--request-id", f.requestID},
	} {
		if _, err := name(m.flag, m.value); err != nil {
			return nil, err
		}
	}
	if err := e.Check(); err != nil {
		return nil, badValue("give either --arguments or --parameter-hash")
	}
	return e, nil
}

func (a *app) permitMint() *cobra.Command {
	var which callFlags
	var ttl api.Seconds
	var hold amounts
	c := a.asking("mint", "Issue a permit for one exact call and print it", cobra.NoArgs, func(ctx context.Context, c *call, at *reached) error {
		e, err := which.expected(c.app)
		if err != nil {
			return err
		}
		req := api.MintRequest{
			Subject: e.Subject, Capability: e.Capability, Server: e.Server, Tool: e.Tool, RequestID: e.RequestID,
			Arguments: e.Arguments, ParameterHash: e.ParameterHash, TTL: ttl,
		}
		if len(hold.list) > 0 {
			req.Hold = &api.MintHold{Entries: hold.list}
		}
		var ans api.MintAnswer
		if err := at.post(ctx, "/v1/permits", &req, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "%s", ans.Permit)
	})
	which.bind(c.Flags())
	secondsFlag(c.Flags(), &ttl, "ttl", "how long it lives, 1s to 1h; without it 30s")
	c.Flags().Var(&hold, "hold", "what to hold until it is used or expires, again for each budget")
	return c
}

// permitFlags are the flags that show a permit for a call.
type permitFlags struct {
	callFlags
	path string
}

func (f *permitFlags) bind(flags *pflag.FlagSet) {
	f.callFlags.bind(flags)
	flags.StringVar(&f.path, "permit", "", "`file` with the permit, - for stdin")
}

func (f *permitFlags) read(a *app) (json.RawMessage, *api.Expected, error) {
	e, err := f.expected(a)
	if err != nil {
		return nil, nil, err
	}
	if f.path == "" {
		return nil, nil, badValue("--permit is missing: name the file with the permit, - for stdin")
	}
	b, err := a.file(f.path)
	if err != nil {
		return nil, nil, err
	}
	p, err := checkedJSON("--permit", b)
	return p, e, err
}

func (a *app) permitConsume() *cobra.Command {
	var shown permitFlags
	c := a.asking("consume", "Use a permit up: exactly one caller ever succeeds", cobra.NoArgs, func(ctx context.Context, c *call, at *reached) error {
		p, e, err := shown.read(c.app)
		if err != nil {
			return err
		}
		mine, err := drawToken()
		if err != nil {
			return err
		}
		var ans api.ConsumeAnswer
		req := api.ConsumeRequest{Permit: p, Expected: *e, Token: mine}
		if err := at.post(ctx, "/v1/permits/consume", &req, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "consumed %s", ans.NonceID)
	})
	shown.bind(c.Flags())
	return c
}

func (a *app) permitCheck() *cobra.Command {
	var shown permitFlags
	c := a.asking("check", "Say whether a permit could be used now, without using it", cobra.NoArgs, func(ctx context.Context, c *call, at *reached) error {
		p, e, err := shown.read(c.app)
		if err != nil {
			return err
		}
		var ans api.CheckAnswer
		req := api.CheckRequest{Permit: p, Expected: *e}
		if err := at.post(ctx, "/v1/permits/check", &req, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "valid")
	})
	shown.bind(c.Flags())
	return c
}

func (a *app) permitRevoke() *cobra.Command {
	var req api.RevokeRequest
	var subject, capability string
	var all bool
	c := a.asking("revoke", "Refuse permits that were issued until now", cobra.NoArgs, func(ctx context.Context, c *call, at *reached) error {
		if all == (subject != "" || capability != "") {
			return badValue("say whose permits: --subject, --capability, or both, or --all for the whole scope")
		}
		req.Subject, req.Capability = api.Name(subject), api.Name(capability)
		var ans api.RevokeAnswer
		if err := at.post(ctx, "/v1/revocations", &req, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "permits issued until %s are refused", ans.Floor)
	})
	c.Flags().StringVar(&subject, "subject", "", "those of a `subject`")
	c.Flags().StringVar(&capability, "capability", "", "those for a `capability`")
	c.Flags().BoolVar(&all, "all", false, "all of the scope")
	return c
}
