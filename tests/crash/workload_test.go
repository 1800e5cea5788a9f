package crash

import (
	"fmt"
	"math/rand/v2"

	"github.com/counterfoil/counterfoil/state"
)

// scopes that the workload touches: a crash must leave each of them at a
// moment of its own history.
var scopes = []string{"default", "other"}

// workload draws batches over few keys, so that they meet each other's
// records, in every state, all the time.
type workload struct {
	rng *rand.Rand
	now func() int64
}

func (w *workload) pick(n int) int { return w.rng.IntN(n) }

func (w *workload) token() (t state.Token) {
	t[0], t[1] = byte(1+w.pick(3)), 1
	return t
}

func (w *workload) key(scope string, kind state.Kind) state.Key {
	return state.Key{Scope: scope, Kind: kind, ID: fmt.Sprint("k", w.pick(6))}
}

func (w *workload) owner() string { return []string{"alice", "bob"}[w.pick(2)] }

func (w *workload) body() []byte { return make([]byte, 1+w.pick(300)) }

func (w *workload) soon() int64 { return w.now() + int64(1+w.pick(120_000)) }

var claimed = []state.Kind{state.KindOperation, state.KindHold, state.KindSpend, state.KindCredential}

// batch draws the next batch. Many will be refused, which must write nothing.
func (w *workload) batch(scope string, budgets map[string]*state.Budget) *state.Batch {
	b := &state.Batch{Scope: scope}
	kind := claimed[w.pick(len(claimed))]
	key := w.key(scope, kind)
	switch w.pick(12) {
	case 0, 1, 2:
		c := state.Claim{Key: key, Owner: w.owner(), Token: w.token(), State: state.Pending, Body: w.body()}
		if kind != state.KindOperation && w.pick(2) == 0 {
			c.Expires = w.soon()
		}
		b.Ops = append(b.Ops, c)
	case 3:
		b.Ops = append(b.Ops, state.Claim{
			Key: w.key(scope, state.KindMarker), Owner: w.owner(), Token: w.token(), State: state.Settled, Expires: w.soon(),
		})
	case 4:
		b.Ops = append(b.Ops, state.Settle{Key: key, Token: w.token(), Body: w.body(), Short: []byte("s"), Retain: w.soon(), Expires: w.now() + 600_000})
	case 5:
		b.Ops = append(b.Ops, state.Drop{Key: key, Token: w.token(), Why: []byte("why")})
	case 6:
		b.Ops = append(b.Ops, state.Update{Key: key, Token: w.token(), Lease: w.soon(), Body: w.body()})
	case 7:
		b.Ops = append(b.Ops, state.Add{Key: w.key(scope, state.KindCounter), Amount: uint64(w.pick(5))})
	case 8:
		b.Ops = append(b.Ops, state.Raise{Key: w.key(scope, state.KindFloor), To: uint64(w.now())})
	case 9:
		b.Ops = append(b.Ops, w.define(scope))
	case 10:
		b.Ops = append(b.Ops, state.Bump{Key: state.ScopeKey(scope), From: uint64(1 + w.pick(4)), Token: w.token()})
	default:
		b.Ops = append(b.Ops, state.Claim{
			Key: w.key(scope, state.KindSpend), Owner: w.owner(), Token: w.token(), State: state.Pending, Expires: w.now() + 600_000,
		})
		b.Keep = true
		for _, name := range []string{"top", "top/child"} {
			if budgets[name] != nil {
				b.Ops = append(b.Ops, state.Move{
					Key: state.Key{Scope: scope, Kind: state.KindBudget, ID: name}, Generation: budgets[name].Generation, Window: state.CurrentWindow,
					Give: state.Bucket{Kind: state.BucketSpent}, GiveAmount: uint64(w.pick(4)) / 3 * 3,
				})
			}
		}
		b.Ops = withParent(b.Ops)
	}
	return b
}

// withParent makes the amount on the parent what it is on the child.
func withParent(ops []state.Op) []state.Op {
	if len(ops) != 3 {
		return ops[:1]
	}
	parent, child := ops[1].(state.Move), ops[2].(state.Move)
	parent.GiveAmount = child.GiveAmount
	return []state.Op{ops[0], parent, child}
}

func (w *workload) define(scope string) state.Op {
	p := state.PutBudget{
		Key: state.Key{Scope: scope, Kind: state.KindBudget, ID: "top"}, Unit: "call", Limit: uint64(20 + w.pick(20)),
		Window: state.Window{Kind: state.WindowLifetime},
	}
	if w.pick(2) == 0 {
		p.Key.ID, p.Parent = "top/child", "top"
	}
	return p
}
