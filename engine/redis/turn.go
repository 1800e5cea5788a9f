package redis

import (
	"context"
	"encoding/hex"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil/internal/entropy"
)

// Of several processes that work on the same records most would meet a conflict
// with every step. So who has met one takes a turn: for a short while only its
// changes are applied in the scope, one after another on what it knows, and the
// others wait. It is for speed alone: safety stays in the comparison, and a turn
// ends by the server's clock, whatever becomes of who has it.
const (
	turnFor  = 40 * time.Millisecond
	turnIdle = 3 * time.Millisecond   // without a step, after which it is given back
	turnPoll = 8 * time.Millisecond   // between two questions of who waits
	turnWait = 250 * time.Millisecond // for turns of others, after which a step is tried without
)

// errTurn: another process has a turn in the scope. Nothing was written.
var errTurn = errors.New("another process has its turn")

// turns are those that this process has.
type turns struct {
	who string // this engine, among all

	mu   sync.Mutex
	held map[string]*turn // by scope
}

type turn struct {
	ends time.Duration // by the boot clock
	idle *time.Timer
}

// newName draws the name of an engine in turns.
func newName() (string, error) {
	var name [16]byte
	err := entropy.Fill(name[:])
	return hex.EncodeToString(name[:]), err
}

// has reports whether this process has a turn in a scope, and puts off giving it
// back.
func (t *turns) has(scope string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.held[scope]
	if mine == nil || boot() >= mine.ends {
		return false
	}
	mine.idle.Reset(turnIdle)
	return true
}

// takeTurn waits, not for long, until this process has a turn in a scope.
// waited is for how long it has before.
func (e *Engine) takeTurn(ctx context.Context, scope string, waited time.Duration) error {
	begin, free, err := e.awaitTurn(ctx, scope, turnFor, waited)
	if free {
		e.turns.took(scope, begin+turnFor, func() { e.endTurn(scope) })
	}
	return err
}

// awaitTurn waits, not for long, until no other process has a turn in a scope,
// and takes one of some length then, or none. It reports when that was, and
// whether it is so.
func (e *Engine) awaitTurn(ctx context.Context, scope string, length, waited time.Duration) (begin time.Duration, free bool, err error) {
	ms := ""
	if length > 0 {
		ms = strconv.FormatInt(length.Milliseconds(), 10)
	}
	for since := boot(); boot() < since+turnWait; {
		begin = boot()
		left, err := e.askTurn(ctx, scope, ms, waited+begin-since)
		if err != nil || left == 0 {
			return begin, err == nil, err
		}
		// It may be given back before. Not all that wait should come back at once: the last digits of the clock tell them apart.
		pause := time.NewTimer(min(left, turnPoll) + boot()%(time.Millisecond/4))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return begin, false, unavailable(ctx.Err())
		}
	}
	return begin, false, nil
}

func (t *turns) took(scope string, ends time.Duration, end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.held[scope]; old != nil {
		old.idle.Stop()
	}
	t.held[scope] = &turn{ends: ends, idle: time.AfterFunc(turnIdle, end)}
}

// endTurn gives a turn back, if it is not over.
func (e *Engine) endTurn(scope string) {
	e.turns.mu.Lock()
	mine := e.turns.held[scope]
	delete(e.turns.held, scope)
	e.turns.mu.Unlock()
	if mine == nil || boot() >= mine.ends {
		return
	}
	end, err := e.begin(context.Background())
	if err != nil {
		return
	}
	defer end()
	_, _ = e.askTurn(context.Background(), scope, "0", 0) // if it is lost, the turn ends by itself
}

// askTurn runs the script of turns, with ms as it is told there, and says after
// how long to ask again.
func (e *Engine) askTurn(ctx context.Context, scope, ms string, waited time.Duration) (left time.Duration, err error) {
	args := []string{e.turns.who, ms, strconv.FormatInt(waited.Milliseconds(), 10)}
	answer, err := e.servers.run(ctx, turnScript, []string{e.layout.place(scope).turn()}, args)
	if err != nil {
		return 0, unavailable(err)
	}
	n, err := answer.AsInt64()
	if err != nil {
		return 0, unavailable(errAnswer)
	}
	return time.Duration(n) * time.Millisecond, nil
}
