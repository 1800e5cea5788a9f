package redis

import (
	"strconv"

	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// swap is what a plan asks of the swap script, whose comment says how keys and
// arguments are arranged.
type swap struct {
	read     reading
	next     []*state.Sealed // what each key that was read shall have
	changed  []bool
	indexes  []index
	known    map[string]int // position of each index by its key
	shrinks  bool
	writes   bool // anything at all
	creates  int
	absences int
}

// index is what changes in one sorted set.
type index struct {
	key         string
	add, remove []string
}

func newSwap(r reading, changes []engine.Change, at []int) *swap {
	s := &swap{read: r, next: make([]*state.Sealed, len(r.values)), changed: make([]bool, len(r.values)), known: map[string]int{}}
	deletes := 0
	for i, c := range changes {
		s.next[at[i]], s.changed[at[i]] = c.Item, true
		was := r.snap.Items[at[i]]
		s.writes = s.writes || was != nil || c.Item != nil
		switch {
		case was == nil && c.Item != nil:
			s.creates++
		case was != nil && c.Item == nil:
			deletes++
		}
		s.index(c.Key, was, c.Item)
	}
	s.shrinks = s.creates == 0 && deletes > 0
	for i := range r.values {
		if r.snap.Items[i] == nil && s.next[i] == nil {
			s.absences++
		}
	}
	return s
}

// script is the one to run: what frees memory must go through when there is
// none left.
func (s *swap) script() *script {
	if s.shrinks {
		return shrinkScript
	}
	return growScript
}

// index notes what one record's change means to the indexes.
func (s *swap) index(k state.Key, was, is *state.Sealed) {
	p := s.read.place
	for _, x := range []engine.Index{engine.ByExpiry, engine.ByLease} {
		before, after := x.Time(was), x.Time(is)
		if before == after {
			continue
		}
		in := s.in(p.due(x, k.Kind))
		if before > 0 {
			in.remove = append(in.remove, dueMember(before, k.ID))
		}
		if after > 0 {
			in.add = append(in.add, dueMember(after, k.ID))
		}
	}
	if (was == nil) == (is == nil) {
		return
	}
	if !k.Kind.Hashed() {
		s.in(p.ids(k.Kind)).list(k.ID, is != nil)
	}
	if k == state.ScopeKey(k.Scope) {
		s.in(p.names).list(k.Scope, is != nil)
	}
}

func (s *swap) in(key string) *index {
	i, ok := s.known[key]
	if !ok {
		i = len(s.indexes)
		s.known[key] = i
		s.indexes = append(s.indexes, index{key: key})
	}
	return &s.indexes[i]
}

func (x *index) list(name string, there bool) {
	if there {
		x.add = append(x.add, name)
	} else {
		x.remove = append(x.remove, name)
	}
}

// arguments gives the keys and arguments of the script.
func (s *swap) arguments(limit, lineage, replicas, who string) (keys, args []string) {
	total := len(s.read.values)
	present := total - s.creates - s.absences
	order := s.order()
	keys = make([]string, 0, total+len(s.indexes)+1)
	args = make([]string, 0, 9+3*total)
	args = append(args, limit, lineage, replicas,
		strconv.Itoa(s.creates), strconv.Itoa(s.absences), strconv.Itoa(present), strconv.Itoa(len(s.indexes)), who)
	for _, i := range order {
		keys, args = append(keys, s.read.buckets[i]), append(args, s.read.snap.Keys[i].ID)
	}
	for _, i := range order[total-present:] {
		args = append(args, storedVersion(s.read.values[i]))
	}
	for _, i := range order[total-present:] {
		args = append(args, s.value(i))
	}
	for _, i := range order[:s.creates] {
		args = append(args, encode(s.next[i]))
	}
	for _, x := range s.indexes {
		keys = append(keys, x.key)
		args = append(args, strconv.Itoa(len(x.add)), strconv.Itoa(len(x.remove)))
		args = append(append(args, x.add...), x.remove...)
	}
	return append(keys, s.read.place.turn()), args
}

// order lists what was read by position: to create, absent, present.
func (s *swap) order() []int {
	order := make([]int, len(s.read.values))
	created, absent, present := 0, s.creates, s.creates+s.absences
	for i := range order {
		switch {
		case s.read.snap.Items[i] != nil:
			order[present], present = i, present+1
		case s.next[i] != nil:
			order[created], created = i, created+1
		default:
			order[absent], absent = i, absent+1
		}
	}
	return order
}

// value is what a present record shall have: "" for what it has, "-" for
// nothing.
func (s *swap) value(i int) string {
	switch {
	case !s.changed[i]:
		return ""
	case s.next[i] == nil:
		return "-"
	}
	return encode(s.next[i])
}
