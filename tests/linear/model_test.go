package linear

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/counterfoil/counterfoil/state"
)

// input is one call on one key. Which calls there are is what a record of an
// operation, and a counter with a limit, can go through.
type input struct {
	call   call
	key    string
	token  byte
	amount uint64
}

type call string

const (
	claim  call = "claim"
	settle call = "settle"
	drop   call = "drop"
	spend  call = "spend"  // from a counter with the limit below
	refund call = "refund" // to it
	look   call = "look"   // at an operation's record, through the group loop
)

// limit is what a counter is spent up to.
const limit = 10

// answer is what a call may tell.
type answer string

const (
	applied  answer = "applied"
	repeated answer = "repeated"
	refused  answer = "refused"
	nothing  answer = "nothing" // certainly not done
	unknown  answer = "unknown" // done or not done
)

// output is what a call told.
type output struct {
	answer answer
	reason state.Reason
	// record is what a refusal or a look showed.
	record record
	value  uint64 // of a counter afterwards
}

// record is the visible state of a key.
type record struct {
	state state.State // 0: absent
	token byte
	value uint64
}

func (r record) String() string { return fmt.Sprintf("%v/%d/%d", r.state, r.token, r.value) }

// step says what a call does to a key, and what it must tell. It is written
// without regard to the implementation: a plain map of keys would do this.
func step(r record, in input) (record, output) {
	switch in.call {
	case claim:
		switch {
		case r.state == state.Void && r.token == in.token:
			return r, output{answer: refused, reason: state.Aborted, record: r}
		case r.state != 0 && r.state != state.Void && r.token == in.token:
			return r, output{answer: repeated, record: r}
		case r.state != 0 && r.state != state.Void:
			return r, output{answer: refused, reason: state.Exists, record: r}
		}
		return record{state: state.Pending, token: in.token}, output{answer: applied}
	case settle, drop:
		to := state.Settled
		if in.call == drop {
			to = state.Void
		}
		switch {
		case r.state == 0:
			return r, output{answer: refused, reason: state.Absent}
		case r.state == to && r.token == in.token:
			return r, output{answer: repeated, record: r}
		case r.token != in.token:
			return r, output{answer: refused, reason: state.NotHolder, record: r}
		case r.state != state.Pending:
			return r, output{answer: refused, reason: state.NotPending, record: r}
		}
		return record{state: to, token: in.token}, output{answer: applied}
	case spend:
		if r.value+in.amount > limit {
			return r, output{answer: refused, reason: state.OverLimit, value: r.value}
		}
		r.value += in.amount
		return r, output{answer: applied, value: r.value}
	case refund:
		r.value -= min(r.value, in.amount)
		return r, output{answer: applied, value: r.value}
	}
	return r, output{answer: applied, record: r}
}

// model checks each key by itself. A call of unknown outcome forks it.
var model = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(input).key
			byKey[k] = append(byKey[k], o)
		}
		parts := make([][]porcupine.Operation, 0, len(byKey))
		for _, p := range byKey {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() []any { return []any{record{}} },
	Step: func(before, in, out any) []any {
		r, told := before.(record), out.(output)
		after, want := step(r, in.(input))
		switch told.answer {
		case nothing:
			return []any{r}
		case unknown:
			return slices.Compact([]any{r, after})
		}
		if told != want {
			return nil
		}
		return []any{after}
	},
	Equal:             func(a, b any) bool { return a.(record) == b.(record) },
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v → %v", in, out) },
	DescribeState:     func(s any) string { return fmt.Sprint(s) },
}
