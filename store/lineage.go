package store

import (
	"github.com/counterfoil/counterfoil/engine"
	"github.com/counterfoil/counterfoil/state"
)

// lossReason is what a scope in quarantine says after a failover that may have
// lost acknowledged changes.
const lossReason = "another copy of the data took over, and acknowledged changes may be missing from it"

// lineage compares the history that the data was read from with the one that
// the scope was last used on. After a plain restart the new one is noted and
// work goes on. If changes that were acknowledged may be missing, the scope goes
// into quarantine, as after a recovery. It returns the scope's new body, nil if
// nothing changes, and the writer record that it must look at, if that was not
// read.
func (t *transaction) lineage(view *state.View, found engine.Lineage) (*state.Scope, []state.Key) {
	sc := t.scope
	rec, _, err := view.Get(state.ScopeKey(sc.name))
	if found.ID == "" || err != nil || rec == nil {
		return nil, nil
	}
	body := *rec.Scope()
	if body.Lineage == found.ID && (sc.lineage == found.ID || sc.lineage == "") {
		sc.lineage = found.ID
		return nil, nil
	}
	own := state.WriterKey(sc.name, sc.slot)
	if _, known, _ := view.Get(own); sc.held && !known {
		return nil, []state.Key{own}
	}
	if t.lossPossible(view, body.Lineage, found) && body.Quarantine == "" {
		body.Generation++
		body.Floor = max(body.Floor, floorAt(t.now))
		body.Quarantine = lossReason
	}
	sc.lineage, body.Lineage = found.ID, found.ID
	if body == *rec.Scope() {
		return nil, nil
	}
	return &body, nil
}

// lossPossible reports whether the data may lack what was acknowledged. Under
// the node guarantee a replica that took over may lack anything. Otherwise this
// instance's own last commit tells: it is missing, or another instance holds
// its slot in the new history, so that nobody can say.
func (t *transaction) lossPossible(view *state.View, stored string, found engine.Lineage) bool {
	sc := t.scope
	if t.store.guarantee.Level != engine.Replicated && found.Previous != "" && (stored == found.Previous || sc.lineage == found.Previous) {
		return true
	}
	if !sc.held || sc.acked.IsZero() {
		return false
	}
	w, _, err := view.Get(state.WriterKey(sc.name, sc.slot))
	switch {
	case err != nil || w == nil:
		return true
	case w.Version == sc.acked || sc.commitOf(w.Version) != nil:
		return false
	}
	return w.Writer().Instance == t.store.instance || stored != sc.lineage
}
