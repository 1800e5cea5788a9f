package operation

import (
	"github.com/counterfoil/counterfoil/state"
)

// DropParams takes an intent back.
type DropParams struct {
	Token  state.Token
	Reason string // at most 1024 bytes
	// Unsettled says that the batch does not give back the intent's hold and spends.
	Unsettled bool
	// Resolution is set if an operator drops it, whose token is not asked for. Its Outcome is DidNotHappen.
	Resolution *Resolution
}

// Dropped says that an intent is void.
type Dropped struct {
	Unsettled bool
	Repeated  bool
}

// DropPart is the part of a batch that takes an intent back. It is the anchor: its op must be the first.
type DropPart struct {
	Ops []state.Op

	resolution *Resolution
}

// Drop makes the part of a batch that makes the intent void if and only if it is pending and the token is its holder's;
// by a resolution, if and only if it is pending and its lease is over.
func (o *Operations) Drop(i *Intent, p DropParams) (*DropPart, error) {
	if err := checkText("reason", p.Reason, false); err != nil {
		return nil, err
	}
	if i.finished() {
		return nil, errTomb
	}
	b := body{
		key: i.body.key, metadata: i.body.metadata, hold: i.body.hold,
		unsettled: p.Unsettled, resolved: p.Resolution, reason: p.Reason,
	}
	op := state.Drop{Key: i.key, Token: p.Token, Why: b.encode()}
	var err error
	if p.Resolution != nil {
		op.Token, op.NewToken, op.IfLeaseOver, err = o.resolving(i)
	}
	return &DropPart{Ops: []state.Op{op}, resolution: p.Resolution}, err
}

// Read gives the answer from the outcome of the part's batch, with the errors of [SettlePart.Read].
func (p *DropPart) Read(out *state.Outcome) (done Dropped, held bool, err error) {
	if out.Applied || out.Repeated {
		done, err = dropped(out.Anchor)
		done.Repeated = out.Repeated
		return done, err == nil, err
	}
	r, refused := out.Refused(0)
	switch {
	case !refused:
		return Dropped{}, false, nil
	case p.resolution == nil:
		return Dropped{}, false, refusalError(r, out.Now)
	case !resolvedAs(r.Record, DidNotHappen):
		return Dropped{}, false, refusedResolution(r, out.Now)
	}
	done, err = dropped(r.Record)
	done.Repeated = true
	return done, err == nil, err
}

func dropped(r *state.Record) (Dropped, error) {
	b, err := decodeBody(r.Body)
	if err != nil {
		return Dropped{}, err
	}
	return Dropped{Unsettled: b.unsettled}, nil
}
