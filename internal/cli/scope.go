package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/internal/config"
	"github.com/counterfoil/counterfoil/state"
)

func (a *app) scopeCommand() *cobra.Command {
	return group("scope", "Units of isolation: tenants, organisations", a.scopeCreate(), a.scopeList(), a.scopeCaps(), a.scopeLift())
}

func (a *app) scopeCreate() *cobra.Command {
	return a.asking("create NAME", "Create a scope and its signing key", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		n, err := name("NAME", c.args[0])
		if err != nil {
			return err
		}
		var ans api.Scope
		if err := at.post(ctx, "/v1/scopes", &api.CreateScopeRequest{Name: n}, &ans); err != nil {
			return err
		}
		return c.answer(&ans, "the scope %s is there", ans.Name)
	})
}

func (a *app) scopeList() *cobra.Command {
	var list listFlags
	c := a.asking("list", "List scopes", cobra.NoArgs, func(ctx context.Context, c *call, at *reached) error {
		var ans api.List[api.Scope]
		if err := at.get(ctx, "/v1/scopes", list.query(), &ans); err != nil {
			return err
		}
		if c.json {
			return c.printJSON(&ans)
		}
		c.more(ans.NextCursor)
		return c.table("NAME\tGENERATION\tEPOCH\tQUARANTINE", func(w *tabwriter.Writer) {
			for _, s := range ans.Items {
				fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", s.Name, s.Generation, s.Epoch, oneLine(s.Quarantine))
			}
		})
	})
	list.bind(c.Flags())
	return c
}

// onStore runs what only works on the store itself.
func (c *call) onStore(ctx context.Context, do func(*stack) error) error {
	if !c.direct() {
		return badValue("this works on the store itself: give --data, not --server")
	}
	return c.with(ctx, func(at *reached) error { return do(at.stack) })
}

// scopeCapsView is the caps of a scope as --json shows them.
type scopeCapsView struct {
	Live            uint64 `json:"live"`
	OwnerLive       uint64 `json:"owner_live"`
	Tombstones      uint64 `json:"tombstones"`
	OwnerTombstones uint64 `json:"owner_tombstones"`
	Bytes           uint64 `json:"bytes"`
	OwnerBytes      uint64 `json:"owner_bytes"`
}

func (a *app) scopeCaps() *cobra.Command {
	var want scopeCapsView
	c := a.command("caps NAME", "Show or change how much a scope may hold; a lower cap only refuses", config.Place, cobra.ExactArgs(1), func(ctx context.Context, c *call) error {
		return c.onStore(ctx, func(s *stack) error {
			var now state.Caps
			err := s.store.ChangeScope(ctx, c.args[0], func(body *state.Scope, _ int64) error {
				for _, f := range want.flags() {
					if c.flags.Flags().Changed(f.name) {
						*f.of(&body.Caps) = *f.value
					}
				}
				now = body.Caps
				return nil
			})
			if err != nil {
				return err
			}
			v := scopeCapsView(now)
			return c.answer(&v, "live records of each kind  %d, of one owner %d\ntombstones                 %d, of one owner %d\nbytes of receipts          %d, of one owner %d",
				v.Live, v.OwnerLive, v.Tombstones, v.OwnerTombstones, v.Bytes, v.OwnerBytes)
		})
	})
	for _, f := range want.flags() {
		c.Flags().Uint64Var(f.value, f.name, 0, f.usage)
	}
	return c
}

// capFlag is a cap that can be changed.
type capFlag struct {
	name, usage string
	value       *uint64
	of          func(*state.Caps) *uint64
}

func (v *scopeCapsView) flags() []capFlag {
	return []capFlag{
		{"max-live", "live records of each kind", &v.Live, func(c *state.Caps) *uint64 { return &c.Live }},
		{"max-owner-live", "live records of each kind and owner", &v.OwnerLive, func(c *state.Caps) *uint64 { return &c.OwnerLive }},
		{"max-tombstones", "tombstones of operations", &v.Tombstones, func(c *state.Caps) *uint64 { return &c.Tombstones }},
		{"max-owner-tombstones", "tombstones of one owner's operations", &v.OwnerTombstones, func(c *state.Caps) *uint64 { return &c.OwnerTombstones }},
		{"max-bytes", "bytes of receipts, together", &v.Bytes, func(c *state.Caps) *uint64 { return &c.Bytes }},
		{"max-owner-bytes", "bytes of one owner's receipts", &v.OwnerBytes, func(c *state.Caps) *uint64 { return &c.OwnerBytes }},
	}
}

func (a *app) scopeLift() *cobra.Command {
	var note string
	var epoch uint64
	c := a.command("lift NAME", "End the quarantine of a scope, once what may have been lost is reconciled", config.Place, cobra.ExactArgs(1), func(ctx context.Context, c *call) error {
		if note == "" {
			return badValue("--note is missing: say how the scope was reconciled")
		}
		return c.onStore(ctx, func(s *stack) error {
			if err := s.store.Lift(ctx, c.args[0], note, epoch); err != nil {
				return err
			}
			body, err := s.store.Scope(ctx, c.args[0])
			if err != nil {
				return err
			}
			ans := api.Scope{Name: api.Name(c.args[0]), Generation: body.Generation, Epoch: api.Epoch(body.Epoch)}
			return c.answer(&ans, "the quarantine of %s is lifted; its epoch is %d", ans.Name, ans.Epoch)
		})
	})
	c.Flags().StringVar(&note, "note", "", "how the scope was reconciled; kept with it")
	c.Flags().Uint64Var(&epoch, "epoch", 0, "the `epoch` to go on from, if a later one than the stored was reached before; never lower")
	return c
}
