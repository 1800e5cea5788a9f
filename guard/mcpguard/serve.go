package mcpguard

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/ids"
	"github.com/counterfoil/counterfoil/operation"
	"github.com/counterfoil/counterfoil/permit"
)

// upstream is the server of one call.
type upstream interface {
	// call sends the call, until by or not at all, and gives its answer. An error that [counterfoil.NotPerformed] made proves that the server did not
	// get it; after any other it may have had its effect.
	call(ctx context.Context, by time.Time) (*answer, error)
	// schema gives the inputSchema of a tool as the server has it now; errNoTool if it has no such tool.
	schema(ctx context.Context, tool string) ([]byte, error)
}

var (
	// errNoTool: the server lists its tools, and this one is not among them.
	errNoTool = errors.New("mcpguard: the server has no such tool")
	// errNotSent: the server did not get the call.
	errNotSent = errors.New("mcpguard: the call was not sent")
	// errReleased: the server said, as configured, that the tool has not run.
	errReleased = errors.New("mcpguard: the server said that the tool has not run")
	// errOpen: the server answered in a way that leaves the outcome open.
	errOpen = errors.New("mcpguard: the server's answer leaves the outcome open")
)

// verdict is what a client gets. One of its members is set.
type verdict struct {
	given   *answer // the server's own answer
	replay  []byte  // the recorded result of an earlier call, marked
	refused *Refusal
}

// guarded is one guarded call.
type guarded struct {
	guard  *Guard
	call   *toolCall
	up     upstream
	caller counterfoil.Caller
	claim  *claim
	asked  time.Time          // when the claim was, or before
	answer *answer            // of the server
	held   *counterfoil.Begun // while the tool works, and after it if its outcome was left open
}

// claimFor bounds the time that a claim takes. It does not end with its client: who leaves in the middle of it would leave a
// claim behind, of a call that nobody sends.
const claimFor = 30 * time.Second

// serve makes a guarded call. ctx ends when nobody waits for it any more; what has begun is finished all the same.
func (g *Guard) serve(ctx context.Context, c *toolCall, up upstream) *verdict {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	default:
		return &verdict{refused: &Refusal{Code: api.Overloaded, Retryable: true, RetryAfter: 1}}
	}
	v, refused := g.judge(c)
	if refused != nil {
		return &verdict{refused: refused}
	}
	s := &guarded{guard: g, call: c, up: up, caller: g.options.As(c.owner), claim: v}
	defer s.shorten() // after a panic too: nobody should wait for a lease that nobody holds
	if refused := s.prepare(ctx); refused != nil {
		return &verdict{refused: refused}
	}
	return s.run(ctx)
}

// prepare asks what only the store and the server know.
func (s *guarded) prepare(ctx context.Context) *Refusal {
	if s.call.continues() {
		return s.goOn(ctx)
	}
	if s.claim.policy.Capability == "" {
		return nil
	}
	schema, err := s.up.schema(ctx, s.call.tool)
	if errors.Is(err, errNoTool) {
		return &Refusal{Code: api.NotFound}
	}
	if err == nil {
		s.claim.begin.Expected.Tool, err = ToolName(s.call.tool, schema)
	}
	if err != nil {
		s.guard.options.Log.Warn("the tools of the server cannot be listed", "error", err)
		return &Refusal{Code: UpstreamUnreachable, Retryable: true, RetryAfter: 1, text: "(Its list of tools, with the schema that a permit is bound to, could not be read.)"}
	}
	return nil
}

// maxRounds is how often one call may ask for input.
const maxRounds = 16

// goOn finds the round that the call continues. Only a recorded result that asked for input with this state allows it; what
// the first round was granted, permit and budgets, holds for the later ones, and for no other tool and arguments than its own.
func (s *guarded) goOn(ctx context.Context) *Refusal {
	b := &s.claim.begin
	b.Permit, b.Expected, b.Spend = nil, permit.Expected{}, nil
	receipt, err := s.firstRound(ctx)
	key := b.Key
	for range maxRounds {
		if err != nil {
			break
		}
		state, asked := asksForInput(receipt)
		if !asked {
			break
		}
		key = roundKey(key, state)
		if state == s.call.stateOf() {
			b.Key = key
			return nil
		}
		var op operation.Operation
		op, err = s.caller.Operation(ctx, ids.Operation(s.call.owner, key))
		receipt = op.Receipt
	}
	if err != nil && !errors.Is(err, permit.ErrMalformed) && !errors.Is(err, operation.ErrNotFound) {
		return s.refusal(err)
	}
	return invalid("no recorded result of this key has asked for input with this requestState: begin the call anew, without inputResponses and requestState")
}

// firstRound gives the recorded result of the call that the key began with, if that was this very call. It asks as a claim
// with a permit that is none: what is there answers, and nothing is claimed.
func (s *guarded) firstRound(ctx context.Context) (*operation.Receipt, error) {
	first := *s.call
	first.responses, first.state = nil, nil
	hash, err := permit.ParameterHash(first.arguments)
	if err != nil {
		return nil, err
	}
	p := s.claim.begin
	p.Fingerprint, p.Permit = s.guard.fingerprint(&first), noPermit
	p.Expected = permit.Expected{
		Subject: first.owner, Capability: "none", Server: s.guard.options.Server, Tool: first.tool, RequestID: p.Key, ParameterHash: hash,
	}
	begun, err := s.caller.Begin(ctx, p)
	return begun.Receipt, err
}

// asksForInput reports whether a recorded result is one that asks for input (2026-07-28), and the state that it gave.
func asksForInput(r *operation.Receipt) (state string, asked bool) {
	if r == nil {
		return "", false
	}
	var result struct {
		ResultType   string `json:"resultType"`
		RequestState string `json:"requestState"`
	}
	if json.Unmarshal(r.Body, &result) != nil {
		return "", false
	}
	return result.RequestState, result.ResultType == "input_required"
}

// run begins the call, waits for another one of its key as long as the policy and the client say, and concludes.
func (s *guarded) run(ctx context.Context) *verdict {
	waiting, cancel := context.WithTimeout(ctx, s.claim.policy.Wait)
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ran, err := s.begin(ctx)
		if !errors.Is(err, operation.ErrInFlight) || s.claim.policy.Wait == 0 {
			return s.conclude(&ran, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-waiting.Done():
			timer.Stop()
			return s.conclude(&ran, err)
		case <-timer.C:
		}
	}
}

// begin makes the call if it is granted. A tool that asks for a permit gets the one that an operator has granted.
func (s *guarded) begin(ctx context.Context) (counterfoil.Ran, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimFor)
	defer cancel()
	s.asked = now()
	ran, err := counterfoil.Run(ctx, s.caller, s.claim.begin, s.effect)
	if !s.claim.awaits() || !errors.Is(err, permit.ErrMalformed) {
		return ran, err
	}
	granted, err := s.approval(ctx)
	if err != nil {
		return ran, err
	}
	p := s.claim.begin
	p.Permit = granted
	s.asked = now()
	return counterfoil.Run(ctx, s.caller, p, s.effect)
}

// effect sends the call. It no longer depends on the client: what has begun is finished and recorded.
func (s *guarded) effect(ctx context.Context, begun counterfoil.Begun) (counterfoil.Result, error) {
	s.held = &begun
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.claim.policy.Timeout)
	defer cancel()
	// After its first lease, and without knowing whether it could be renewed, nobody may begin.
	a, err := s.up.call(ctx, s.asked.Add(s.claim.policy.Lease))
	if errors.Is(err, errNotSent) {
		s.held = nil
		return counterfoil.Result{}, counterfoil.NotPerformed(err)
	}
	if err != nil {
		return counterfoil.Result{}, err
	}
	s.answer = a
	switch p := s.claim.policy; {
	case a.failed && p.released(a):
		s.held = nil
		return counterfoil.Result{}, counterfoil.NotPerformed(errReleased)
	case a.failed || p.Record == SuccessOnly && a.isError():
		return counterfoil.Result{}, errOpen
	}
	s.held = nil
	return counterfoil.Result{Receipt: operation.Receipt{ContentType: "application/json", Body: a.result}}, nil
}

// isError reports whether the tool says that it failed.
func (a *answer) isError() bool {
	var result struct {
		IsError bool `json:"isError"`
	}
	return json.Unmarshal(a.result, &result) != nil || result.IsError
}

// released reports whether a server says, as configured, that the tool has not run.
func (p *Policy) released(a *answer) bool {
	return a.code != 0 && slices.Contains(p.NotPerformed, a.code) || slices.Contains(p.NotPerformedStatuses, a.status)
}

// shorten lets a lease that nobody holds any more run out soon.
func (s *guarded) shorten() {
	if s.held == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.claim.policy.Lease)
	defer cancel()
	if _, err := s.caller.Renew(ctx, counterfoil.RenewParams{ID: s.held.ID, Token: s.held.Token, Lease: counterfoil.MinLease}); err != nil {
		s.guard.options.Log.Debug("a lease whose outcome is open runs on", "operation", s.held.ID, "error", err)
	}
}

// conclude says what the client gets.
func (s *guarded) conclude(ran *counterfoil.Ran, err error) *verdict {
	log := s.guard.options.Log
	var decided *approvalError
	switch {
	case errors.As(err, &decided):
		return &verdict{refused: decided.refusal}
	case errors.Is(err, errReleased), errors.Is(err, errNotSent):
		var joined interface{ Unwrap() []error }
		if errors.As(err, &joined) {
			log.Error("a claim could not be taken back: its outcome will count as unknown", "operation", ran.Begun.ID, "error", err)
		}
		if s.answer != nil {
			return &verdict{given: s.answer}
		}
		return &verdict{refused: &Refusal{Code: UpstreamUnreachable, Retryable: true, RetryAfter: 1}}
	case s.held != nil && s.answer != nil:
		log.Warn("the outcome of a call is open", "operation", ran.Begun.ID, "tool", s.call.tool)
		return &verdict{given: s.answer}
	case s.held != nil:
		log.Warn("the outcome of a call is open", "operation", ran.Begun.ID, "tool", s.call.tool, "error", err)
		return &verdict{refused: &Refusal{Code: api.OutcomeUnknown, Operation: ran.Begun.ID}}
	case err != nil:
		return &verdict{refused: s.refusal(err)}
	case ran.Begun.State == counterfoil.Replay:
		return &verdict{replay: replayed(ran.Receipt.Body)}
	case !ran.Recorded:
		log.Error("a result could not be recorded: its outcome will count as unknown", "operation", ran.Begun.ID, "error", ran.RecordError)
	}
	return &verdict{given: s.answer}
}

func (s *guarded) refusal(err error) *Refusal {
	r := refusalOf(err, now())
	if r.Code == api.OutcomeUnknown {
		r.Operation = ids.Operation(s.call.owner, s.claim.begin.Key)
	}
	if row, ok := r.Code.Info(); !ok || row.Status() >= 500 {
		s.guard.options.Log.Error("a call was refused", "tool", s.call.tool, "code", r.Code, "error", err)
	}
	return r
}

func now() time.Time { return clock.System{}.Now() }
