package state

// View is the records that a group of batches is decided on. Batches of one
// group are decided one after another, each on top of what the ones before it
// wrote. A View is not safe for concurrent use.
type View struct {
	entries map[Key]entry
	// The last owner that was hashed: a group's batches are often of one.
	owner string
	known OwnerTag
}

type entry struct {
	rec *Record     // nil: absent, or unreadable
	bad *unreadable // nil: absent, or readable
}

// unreadable is a record that cannot be used.
type unreadable struct {
	stored Version // as the engine has it
	err    error
}

// NewView makes a view that knows no key.
func NewView() *View { return &View{entries: make(map[Key]entry, 16)} }

// Reset makes the view know nothing again, and keeps its room.
func (v *View) Reset() { clear(v.entries) }

// Absent tells the view that no record has the key.
func (v *View) Absent(key Key) { v.entries[key] = entry{} }

// Load tells the view what record the key has.
func (v *View) Load(key Key, rec *Record) { v.entries[key] = entry{rec: rec} }

// Unreadable tells the view that the key has a record that cannot be used,
// and why. Every batch that needs it fails with err.
func (v *View) Unreadable(key Key, stored Version, err error) {
	v.entries[key] = entry{bad: &unreadable{stored, err}}
}

// Get gives the record of a key; known is false if the view was not told.
func (v *View) Get(key Key) (rec *Record, known bool, err error) {
	e, known := v.entries[key]
	if e.bad != nil {
		return nil, true, e.bad.err
	}
	return e.rec, known, nil
}

// Apply puts the writes of a decision on top of the view.
func (v *View) Apply(writes []Write) {
	for _, w := range writes {
		v.entries[w.Key] = entry{rec: w.Record}
	}
}

// Write is one record that a decision writes; a nil Record deletes.
type Write struct {
	Key    Key
	Record *Record
}

// NewWriterRecord makes the record of a store instance's slot.
func NewWriterRecord(w Writer, version Version, now int64) *Record {
	return &Record{Version: version, State: Settled, Created: now, Updated: now, writer: &w}
}

// WithScope makes a scope record like r with another body.
func (r *Record) WithScope(s Scope, version Version, now int64) *Record {
	c := *r
	c.scope, c.Version, c.Updated = &s, version, now
	return &c
}

// IsAhead reports whether a record was written at a time after now, or is the
// writer record of an instance that decided at one.
func (r *Record) IsAhead(now int64) bool {
	return r.Updated > now || r.writer != nil && r.writer.Mark > now
}

// BroughtBack makes a record like r that was written at now: what an operator
// accepts when a clock was ahead.
func (r *Record) BroughtBack(version Version, now int64) *Record {
	c := *r
	c.Version, c.Updated, c.Created = version, min(r.Updated, now), min(r.Created, now)
	if r.writer != nil {
		w := *r.writer
		w.Mark, w.Lease = min(w.Mark, now), min(w.Lease, now)
		c.writer = &w
	}
	return &c
}

// tag is TagOwner, remembered.
func (v *View) tag(owner string) OwnerTag {
	if v.owner != owner {
		v.owner, v.known = owner, TagOwner(owner)
	}
	return v.known
}
