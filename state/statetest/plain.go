package statetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/counterfoil/counterfoil/state"
)

// Plain is the smallest store: sealed records in a map, one batch after
// another, by as many instances (quota shards) as one likes. It is not safe for
// concurrent use.
type Plain struct {
	Records map[state.Key]*state.Sealed
	Keys    *state.Keys
	Now     int64
	commits uint64
}

// NewPlain makes a store without records.
func NewPlain() *Plain {
	secret := bytes.Repeat([]byte{7}, state.IntegrityKeyBytes)
	keys, err := state.NewKeys(state.IntegrityKeyID(secret), [][]byte{secret})
	if err != nil {
		panic(err)
	}
	return &Plain{Records: map[state.Key]*state.Sealed{}, Keys: keys, Now: 1}
}

// Version is what the next commit will carry.
func (p *Plain) Version() state.Version {
	v := state.Version{0: 'v'}
	binary.BigEndian.PutUint64(v[4:], p.commits+1)
	return v
}

// Generation is what a budget will carry that the batch with that number in the
// next commit defines.
func (p *Plain) Generation(seq int) state.Version {
	v := p.Version()
	binary.BigEndian.PutUint32(v[12:], binary.BigEndian.Uint32(v[12:])^uint32(seq))
	return v
}

// Result is the answer to one batch.
type Result struct {
	Outcome state.Outcome
	Err     error
}

// Do runs a batch as the store instance that counts in the shard. An error that
// wraps none of the errors of package state says what was found wrong.
func (p *Plain) Do(b *state.Batch, shard uint16) (state.Outcome, error) {
	r := p.Group([]*state.Batch{b}, shard)[0]
	return r.Outcome, r.Err
}

// Group runs batches one after another on top of each other's results, in one
// commit, as the store instance that counts in the shard. It decides each
// twice, to see that nothing but the arguments matters and that the view is
// left alone, and opens every record that it seals.
func (p *Plain) Group(batches []*state.Batch, shard uint16) []Result {
	var keys []state.Key
	for _, b := range batches {
		if b.Validate() == nil {
			keys = b.Keys(keys, shard)
		}
	}
	for range 16 * len(batches) {
		view := p.view(keys)
		results, writes, need := p.decide(view, keys, batches, shard)
		if len(need) > 0 {
			keys = append(keys, need...)
			continue
		}
		if err := p.commit(view, writes); err != nil {
			results[0].Err = err
		}
		return results
	}
	return []Result{{Err: errors.New("a decision needs more and more keys")}}
}

func (p *Plain) decide(view *state.View, keys []state.Key, batches []*state.Batch, shard uint16) (results []Result, writes []state.Write, need []state.Key) {
	for seq, b := range batches {
		before := p.prints(view, keys)
		c := state.Context{Now: p.Now, Version: p.Version(), Shard: shard, Seq: uint32(seq)}
		d := state.Decide(view, b, c)
		r := Result{d.Outcome, d.Err}
		switch again := state.Decide(view, b, c); {
		case !sameDecision(d, again):
			r.Err = fmt.Errorf("decided %+v, and then %+v", d, again)
		case !reflect.DeepEqual(before, p.prints(view, keys)):
			r.Err = errors.New("a decision changed its view")
		case len(d.Writes) > 0 && !d.Outcome.Applied:
			r.Err = errors.New("a batch that was not applied writes")
		case len(d.Need) > 0:
			return nil, nil, d.Need
		}
		view.Apply(d.Writes)
		results, writes = append(results, r), append(writes, d.Writes...)
	}
	return results, writes, nil
}

func sameDecision(a, b state.Decision) bool {
	return reflect.DeepEqual(a.Outcome, b.Outcome) && reflect.DeepEqual(a.Writes, b.Writes) && reflect.DeepEqual(a.Need, b.Need) &&
		(a.Err == nil) == (b.Err == nil) && (a.Err == nil || a.Err.Error() == b.Err.Error())
}

func (p *Plain) view(keys []state.Key) *state.View {
	v := state.NewView()
	for _, k := range keys {
		s, ok := p.Records[k]
		if !ok {
			v.Absent(k)
			continue
		}
		r, err := p.Keys.Open(k, s)
		if err != nil {
			v.Unreadable(k, s.Version, err)
			continue
		}
		v.Load(k, r)
	}
	return v
}

// prints gives the bytes of all records of a view.
func (p *Plain) prints(v *state.View, keys []state.Key) map[state.Key]string {
	all := map[state.Key]string{}
	for _, k := range keys {
		if r, _, err := v.Get(k); err == nil && r != nil {
			all[k] = string(p.Keys.Seal(k, r).Data)
		}
	}
	return all
}

func (p *Plain) commit(view *state.View, writes []state.Write) error {
	for _, w := range writes {
		if _, known, _ := view.Get(w.Key); !known {
			return fmt.Errorf("a %s record is written that was not read", w.Key.Kind)
		}
		if w.Record == nil {
			delete(p.Records, w.Key)
			continue
		}
		if w.Record.Version != p.Version() || w.Record.Updated != p.Now {
			return errors.New("a record is written without the commit's version and time")
		}
		s := p.Keys.Seal(w.Key, w.Record)
		r, err := p.Keys.Open(w.Key, s)
		if err != nil {
			return fmt.Errorf("a %s record does not open again: %w", w.Key.Kind, err)
		}
		if again := p.Keys.Seal(w.Key, r); !reflect.DeepEqual(s, again) {
			return fmt.Errorf("a %s record is not what was sealed", w.Key.Kind)
		}
		p.Records[w.Key] = s
	}
	p.commits++
	return nil
}

// Open gives all readable records.
func (p *Plain) Open() map[state.Key]*state.Record {
	all := make(map[state.Key]*state.Record, len(p.Records))
	for k, s := range p.Records {
		if r, err := p.Keys.Open(k, s); err == nil {
			all[k] = r
		}
	}
	return all
}

// Damage flips a bit of a record. It reports whether there is one.
func (p *Plain) Damage(key state.Key) bool {
	s, ok := p.Records[key]
	if !ok {
		return false
	}
	c := *s
	c.Data = bytes.Clone(s.Data)
	c.Data[len(c.Data)-1] ^= 1
	p.Records[key] = &c
	return true
}
