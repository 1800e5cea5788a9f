package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/internal/config"
	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// The states of a finding.
const (
	fine    = "ok"
	look    = "look" // nothing is broken, somebody should know
	broken  = "BAD"
	maxRows = 1000 // damaged records that are listed
)

// finding is one line of a doctor's report.
type finding struct {
	Part   string `json:"part"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Do     string `json:"do,omitzero"`
}

// damage is a record that cannot be read.
type damage struct {
	Scope   string `json:"scope"`
	Kind    string `json:"kind"`
	ID      string `json:"id" doc:"hex"`
	Version string `json:"version"`
	Reason  string `json:"reason"`
}

// scopeReport is what a scope holds.
type scopeReport struct {
	Name       string           `json:"name"`
	Generation uint64           `json:"generation"`
	Epoch      uint64           `json:"epoch"`
	Floor      api.Time         `json:"floor,omitzero"`
	Quarantine string           `json:"quarantine,omitzero"`
	Unresolved int              `json:"outcome_unknown"`
	Usage      []usageOfKind    `json:"usage"`
	Caps       scopeCapsView    `json:"caps"`
	Records    map[string]int64 `json:"records"`
}

// usageOfKind is one count of a scope, all shards together.
type usageOfKind struct {
	Kind string `json:"kind"`
	What string `json:"what"`
	Used uint64 `json:"used"`
	Cap  uint64 `json:"cap"`
}

// report is all that doctor finds.
type report struct {
	Findings []finding     `json:"findings"`
	Scopes   []scopeReport `json:"scopes"`
	Damaged  []damage      `json:"damaged"`
	More     bool          `json:"more_damaged,omitzero"`
}

func (r *report) add(state, part, do, format string, args ...any) {
	r.Findings = append(r.Findings, finding{part, state, oneLine(fmt.Sprintf(format, args...)), do})
}

func (r *report) healthy() bool {
	for _, f := range r.Findings {
		if f.State == broken {
			return false
		}
	}
	return true
}

func (a *app) doctorCommand() *cobra.Command {
	c := a.command("doctor", "Look at a store that no server has open: settings, keys, witness, clock, quotas, and every record", config.Place, cobra.NoArgs,
		func(ctx context.Context, c *call) error {
			if !c.direct() {
				return badValue("doctor looks at the store itself: give --data, not --server; of a server ask /readyz")
			}
			p, err := placeOf(c.config)
			if err != nil {
				return err
			}
			r := &report{Scopes: []scopeReport{}, Damaged: []damage{}}
			if err := c.examine(ctx, p, r); err != nil {
				return err
			}
			if err := c.showReport(r); err != nil {
				return err
			}
			if !r.healthy() {
				return exit(Refused, "the doctor found what must be mended: the lines marked %s say how", broken)
			}
			return nil
		})
	c.AddCommand(a.doctorMend())
	return c
}

// examine looks at everything. What does not open is a finding and not an error, except that somebody else has it open.
func (c *call) examine(ctx context.Context, p place, r *report) error {
	if _, err := p.openKeys(); err != nil {
		r.add(broken, "keys", "restore DIR/keys from where it is kept apart", "%v", err)
		return nil
	}
	r.add(fine, "keys", "", "%s", p.keys)
	if info, err := os.Lstat(p.token); err == nil && info.Mode().Perm()&0o077 != 0 {
		r.add(broken, "token", "chmod 600 "+quote(p.token)+", and revoke the token if others may have read it", "%s is open to others", p.token)
	}
	silent := slog.New(slog.DiscardHandler)
	c.examineServers(ctx, p, r)
	s, err := openSoon(ctx, p, c.config, silent)
	switch {
	case errors.Is(err, store.ErrRolledBack) || errors.Is(err, store.ErrWitness):
		r.add(broken, "witness", "counterfoil recover --why WHAT-HAPPENED", "%v", err)
		return nil
	case errors.Is(err, engine.ErrUnsafe):
		return nil // the settings are listed
	case err != nil && codeOf(err) == Unavailable:
		return err
	case err != nil:
		r.add(broken, "store", "", "%v", err)
		return nil
	}
	return errors.Join(c.examineStore(ctx, s, r), s.close())
}

// examineServers looks at every setting of the servers that the guarantee rests on.
func (c *call) examineServers(ctx context.Context, p place, r *report) {
	found, err := p.location.Settings(ctx, p.engineOptions(c.config, slog.New(slog.DiscardHandler), nil))
	if err != nil {
		r.add(broken, "settings", "", "%v", err)
		return
	}
	for i := range found {
		s := &found[i]
		state := fine
		if !s.Safe {
			state = broken
			if c.config.UnsafeDurability {
				state = look
			}
		}
		detail := fmt.Sprintf("%s is %q, want %s", s.Name, s.Value, s.Want)
		if s.Where != "" {
			detail += ", on " + s.Where
		}
		r.add(state, "settings", s.Mend, "%s", detail)
	}
}

func (c *call) examineStore(ctx context.Context, s *stack, r *report) error {
	g := s.engine.Guarantee()
	r.add(fine, "engine", "", "%s on %s: %s", g.Engine, s.place.shown, meaningOf(g.Level))
	for _, weak := range g.Unsafe {
		r.add(look, "durability", "set it as the engine's guarantee needs it", "weaker than it should be, and accepted: %s", weak)
	}
	if s.place.witness == "" {
		r.add(look, "witness", "name one with --witness to notice a rollback", "there is none")
	} else {
		r.add(fine, "witness", "", "%s agrees", s.place.witness)
	}
	now, err := s.store.Now(ctx)
	if errors.Is(err, state.ErrClock) {
		r.add(broken, "clock", "mend the clock, or accept it with 'counterfoil clock rebaseline --why WHAT-HAPPENED'", "%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	r.add(fine, "clock", "", "%s", api.TimeOf(now))
	if gap := s.store.Health().Downtime; gap > 0 {
		r.add(look, "downtime", "compare the clock: a leap forward looks the same", "nothing was decided for %s", gap.Round(time.Second))
	}
	for cursor := ""; ; {
		names, next, err := s.store.Scopes(ctx, cursor, 256)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.scope(ctx, s.store, name, now); err != nil {
				return err
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if err := r.records(ctx, s.store, state.StoreScope, nil); err != nil {
		return err
	}
	if n := len(r.Damaged); n > 0 {
		r.add(broken, "records", "an operation: 'counterfoil operation resolve'; any other: 'counterfoil doctor mend', or restore a backup", "%d cannot be read; they are listed", n)
	} else {
		r.add(fine, "records", "", "all can be read")
	}
	return nil
}

// scope looks at one scope.
func (r *report) scope(ctx context.Context, s *store.Store, name string, now int64) error {
	body, err := s.Scope(ctx, name)
	if errors.Is(err, state.ErrCorrupt) || errors.Is(err, state.ErrKeyUnknown) {
		r.add(broken, "scope "+name, "restore a backup", "its record cannot be read: %v", err)
		return r.records(ctx, s, name, nil)
	}
	if err != nil {
		return err
	}
	v := scopeReport{
		Name: name, Generation: body.Generation, Epoch: body.Epoch, Floor: api.TimeOf(body.Floor), Quarantine: body.Quarantine,
		Usage: []usageOfKind{}, Caps: scopeCapsView(body.Caps), Records: map[string]int64{},
	}
	if body.Quarantine != "" {
		r.add(look, "scope "+name, "reconcile, then 'counterfoil scope lift "+quote(name)+" --note HOW'", "in quarantine: %s", body.Quarantine)
	}
	if err := r.records(ctx, s, name, &v); err != nil {
		return err
	}
	late, _, err := s.Leases(ctx, name, state.KindOperation, now-1, "", 500)
	if err != nil {
		return err
	}
	if v.Unresolved = len(late); v.Unresolved > 0 {
		r.add(look, "scope "+name, "'counterfoil operation list --state outcome_unknown', then resolve each", "%d operations of unknown outcome", v.Unresolved)
	}
	r.Scopes = append(r.Scopes, v)
	return nil
}

// records reads every record of a scope.
func (r *report) records(ctx context.Context, s *store.Store, scope string, v *scopeReport) error {
	for _, kind := range state.Kinds() {
		for cursor := ""; ; {
			page, next, err := s.Scan(ctx, scope, kind, "", cursor, 500)
			if err != nil {
				return err
			}
			for i := range page {
				r.record(&page[i], v)
			}
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	return nil
}

func (r *report) record(e *store.Entry, v *scopeReport) {
	if e.Err != nil {
		if len(r.Damaged) == maxRows {
			r.More = true
			return
		}
		r.Damaged = append(r.Damaged, damage{e.Key.Scope, e.Key.Kind.String(), hex.EncodeToString([]byte(e.Key.ID)), hex.EncodeToString(e.Version[:]), oneLine(e.Err.Error())})
		return
	}
	if v == nil {
		return
	}
	v.Records[e.Key.Kind.String()]++
	if u, ok := state.UsageOf(e.Key, e.Record); ok && !u.OfOwner {
		v.use(u)
	}
}

// use adds a shard of a count.
func (v *scopeReport) use(u state.Usage) {
	for i := range v.Usage {
		if v.Usage[i].Kind == u.Kind.String() && v.Usage[i].What == u.What {
			v.Usage[i].Used += u.Used
			return
		}
	}
	limit := map[string]uint64{"live": v.Caps.Live, "tombstones": v.Caps.Tombstones, "bytes": v.Caps.Bytes}[u.What]
	v.Usage = append(v.Usage, usageOfKind{u.Kind.String(), u.What, u.Used, limit})
}

func (c *call) showReport(r *report) error {
	if c.json {
		return c.printJSON(r)
	}
	err := c.table("STATE\tPART\tWHAT", func(w *tabwriter.Writer) {
		for _, f := range r.Findings {
			text := f.Detail
			if f.Do != "" {
				text += "; " + f.Do
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", f.State, f.Part, text)
		}
	})
	if err != nil {
		return err
	}
	if len(r.Scopes) > 0 {
		fmt.Fprintln(c.Out)
	}
	err = c.table("SCOPE\tGENERATION\tEPOCH\tHOLDS", func(w *tabwriter.Writer) {
		for i := range r.Scopes {
			v := &r.Scopes[i]
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", v.Name, v.Generation, v.Epoch, v.holds())
		}
	})
	if err != nil || len(r.Damaged) == 0 {
		return err
	}
	fmt.Fprintln(c.Out)
	return c.table("DAMAGED IN\tKIND\tID\tVERSION\tWHY", func(w *tabwriter.Writer) {
		for _, d := range r.Damaged {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", d.Scope, d.Kind, d.ID, d.Version, d.Reason)
		}
	})
}

// holds says how full a scope is.
func (v *scopeReport) holds() string {
	if len(v.Usage) == 0 {
		return "nothing that is counted"
	}
	parts := make([]string, len(v.Usage))
	for i, u := range v.Usage {
		parts[i] = fmt.Sprintf("%s %s %d of %d", u.Kind, u.What, u.Used, u.Cap)
	}
	return strings.Join(parts, ", ")
}

func (a *app) doctorMend() *cobra.Command {
	var version, why string
	c := a.command("mend SCOPE KIND ID", "Overwrite a record that cannot be read with one that says that it is gone: what it stood for is forgotten",
		config.Place, cobra.ExactArgs(3), func(ctx context.Context, c *call) error {
			op, err := c.mending(version)
			if err != nil {
				return err
			}
			if why == "" {
				return badValue("--why is missing: say how it was found out what the record stood for")
			}
			op.Body = []byte(why)
			return c.onStore(ctx, func(s *stack) error {
				out, err := s.store.Do(ctx, &state.Batch{Scope: op.Key.Scope, Ops: []state.Op{op}})
				switch {
				case err != nil:
					return err
				case !out.Applied:
					return exit(Refused, "the record is not as 'counterfoil doctor' showed it (%s): look again", out.Refusals[0].Reason)
				}
				return c.answer(&finding{Part: op.Key.Kind.String(), State: fine, Detail: "mended"}, "mended")
			})
		})
	c.Flags().StringVar(&version, "version", "", "of the record, as doctor shows it")
	c.Flags().StringVar(&why, "why", "", "how it is known what the record stood for; kept with it")
	return c
}

// mending is the step that overwrites the record which the arguments name.
func (c *call) mending(version string) (state.Replace, error) {
	id, err := hex.DecodeString(c.args[2])
	if err != nil {
		return state.Replace{}, badValue("ID: want hex, as doctor shows it")
	}
	op := state.Replace{Key: state.Key{Scope: c.args[0], ID: string(id)}, State: state.Void}
	for _, kind := range state.Kinds() {
		if kind.String() == c.args[1] {
			op.Key.Kind = kind
		}
	}
	switch op.Key.Kind {
	case 0:
		return op, badValue("KIND: want one that doctor shows")
	case state.KindOperation:
		return op, badValue("an operation is mended by 'counterfoil operation resolve %s', which asks whether it happened", c.args[2])
	case state.KindCredential, state.KindApproval, state.KindChallenge, state.KindHold, state.KindSpend:
	default:
		return op, badValue("a record of kind %s cannot be forgotten without granting what it refuses: restore a backup, then 'counterfoil recover'", op.Key.Kind)
	}
	v, err := hex.DecodeString(version)
	if err != nil || len(v) != len(op.Version) {
		return op, badValue("--version: want 32 hex digits, as doctor shows them")
	}
	op.Version = state.Version(v)
	return op, nil
}
