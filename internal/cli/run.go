package cli

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/internal/config"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/state"
)

// Bounds of run.
const (
	defaultRunLease = 10 * time.Minute
	waitAtMost      = 2 * time.Second // between two looks at a run in flight
)

// The exit codes of a command that could not be started, as shells have them.
const (
	cannotExecute = 126
	notFound      = 127
)

func (a *app) runCommand() *cobra.Command {
	var key string
	var lease time.Duration
	var wait bool
	c := a.command("run --key KEY [flags] -- COMMAND [ARGUMENT…]", "Run a command at most once for a key; a second run prints what the first one did",
		config.Place, cobra.MinimumNArgs(1), func(ctx context.Context, c *call) error {
			k, err := name("--key", key)
			if err != nil {
				return err
			}
			if lease < counterfoil.MinLease || lease > counterfoil.MaxLease {
				return badValue("--lease: want 1s to 1h; it is renewed while the command runs")
			}
			c.config.MaxReceipt = max(c.config.MaxReceipt, keepInStore)
			r := &runner{call: c, wait: wait, steps: &steps{call: c, lease: lease}}
			return r.run(ctx, counterfoil.BeginParams{Key: string(k), Fingerprint: fingerprintOf(c.args), Lease: lease})
		})
	c.Flags().StringVar(&key, "key", "", "names what must not happen twice, 1 to 256 bytes")
	c.Flags().DurationVar(&lease, "lease", defaultRunLease, "how long after this program is gone its outcome counts as unknown, 1s to 1h")
	c.Flags().BoolVar(&wait, "wait", false, "wait for a run that is in flight instead of refusing")
	c.Flags().SetInterspersed(false)
	return c
}

func fingerprintOf(args []string) counterfoil.Fingerprint {
	sum, _ := api.Digest(ids.RunFingerprint(args)).Bytes() // always 64 hex digits
	return sum
}

// runner runs one command at most once.
type runner struct {
	*call
	wait  bool
	steps *steps
}

func (r *runner) run(ctx context.Context, p counterfoil.BeginParams) error {
	for {
		ran, err := counterfoil.Run(ctx, r.steps, p, r.effect)
		var flight *operation.InFlightError
		if !r.wait || !errors.As(err, &flight) {
			return r.conclude(&ran, err)
		}
		if err := pause(ctx, min(max(flight.RetryAfter, 50*time.Millisecond), waitAtMost)); err != nil {
			return r.conclude(&ran, err)
		}
	}
}

// pause waits, until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return exit(Refused, "interrupted before the command was started")
	case <-timer.C:
		return nil
	}
}

// effect runs the command. Its error is a proof that the command was not started, or there is none.
func (r *runner) effect(ctx context.Context, _ counterfoil.Begun) (counterfoil.Result, error) {
	if ctx.Err() != nil {
		return counterfoil.Result{}, counterfoil.NotPerformed(exit(Refused, "interrupted before the command was started"))
	}
	child, err := r.start()
	if err != nil {
		code := cannotExecute
		if errors.Is(err, exec.ErrNotFound) {
			code = notFound
		}
		return counterfoil.Result{}, counterfoil.NotPerformed(exit(Code(code), "the command could not be started: %w", err))
	}
	return counterfoil.Result{Receipt: child.wait()}, nil
}

// conclude says what became of a run.
func (r *runner) conclude(ran *counterfoil.Ran, err error) error {
	if err != nil {
		return r.refused(ran, err)
	}
	if ran.Begun.State == counterfoil.Replay {
		return r.replay(&ran.Receipt)
	}
	if !ran.Recorded {
		return instead(ran.RecordError, Unknown, "the command has ended with code %d, but that could not be recorded: %w; once its lease is over, its outcome counts as unknown: %s",
			ran.Receipt.Status, ran.RecordError, r.resolveWith(ran.Begun.ID, "happened"))
	}
	if ran.Receipt.Status != 0 {
		return &quietError{ran.Receipt.Status}
	}
	return nil
}

// refused says why a command was not run.
func (r *runner) refused(ran *counterfoil.Ran, err error) error {
	var started *exitError
	switch {
	case errors.As(err, &started):
		return started
	case errors.Is(err, operation.ErrOutcomeUnknown):
		return instead(err, Unknown, "an earlier run ended without a word, and may have done its work: find out whether it happened, make sure that it is dead, then: %s",
			r.resolveWith(r.idOf(ran), "happened|did_not_happen"))
	case errors.Is(err, operation.ErrInFlight):
		return instead(err, Refused, "in_flight: another run of this key is at work; add --wait to wait for it")
	case errors.Is(err, operation.ErrMismatch):
		return instead(err, Refused, "key_reused: the key was used for another command; use a new key")
	case errors.Is(err, operation.ErrReceiptNotRetained):
		return instead(err, Refused, "receipt_not_retained: the command has run, but its output was too large to be kept; its effect is what tells")
	case errors.Is(err, state.ErrUnknown):
		return instead(err, Unknown, "the command was not run, but its claim may stand; run it again with the same key to see")
	}
	return err
}

func (r *runner) idOf(ran *counterfoil.Ran) string {
	if ran.Begun.ID != "" || r.steps.id == "" {
		return ran.Begun.ID
	}
	return r.steps.id
}

// resolveWith is the command that tells the outcome of a run.
func (r *runner) resolveWith(id, outcome string) string {
	if id == "" {
		id = "ID" // 'counterfoil operation list --state outcome_unknown' has it
	}
	text := "counterfoil operation resolve " + id + " --outcome " + outcome + " --note 'how it is known'"
	for _, o := range []struct{ flag, value string }{
		{"--data", r.config.Data}, {"--store", r.config.ShownStore()}, {"--server", r.config.Server}, {"--scope", r.config.Scope}, {"--owner", r.config.Owner},
	} {
		if o.value != "" {
			text += " " + o.flag + " " + quote(o.value)
		}
	}
	return text
}

// replay does again what the first run did to its output and exit code.
func (r *runner) replay(receipt *operation.Receipt) error {
	out, errs, err := outputOf(receipt)
	if err != nil {
		return exit(Refused, "the operation has happened, but not by 'counterfoil run': %w; see it with 'counterfoil operation show'", err)
	}
	if _, err := r.Out.Write(out.kept); err != nil {
		return err
	}
	if _, err := r.Err.Write(errs.kept); err != nil {
		return err
	}
	for _, o := range []*output{out, errs} {
		if o.dropped > 0 {
			r.note("of the first run's " + o.name + " the last " + strconv.FormatInt(o.dropped, 10) + " bytes were not kept")
		}
	}
	if receipt.Status != 0 {
		return &quietError{receipt.Status}
	}
	return nil
}
