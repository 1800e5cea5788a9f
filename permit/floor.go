package permit

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/counterfoil/counterfoil/state"
)

// A floor refuses every permit that was issued at or before it. There is one of the scope, in its own record, and one of
// each subject, capability and pair of both that was ever revoked. Their ids begin with what they are of; a pair's carries
// the length of the subject, so that no two pairs share one.
const (
	floorOfSubject    = 's'
	floorOfCapability = 'c'
	floorOfPair       = 'p'
)

// floorKey is the key of a floor; with neither subject nor capability it is the scope's own.
func floorKey(scope, subject, capability string) state.Key {
	var id []byte
	switch {
	case subject == "" && capability == "":
		return state.ScopeKey(scope)
	case capability == "":
		id = append(append(id, floorOfSubject), subject...)
	case subject == "":
		id = append(append(id, floorOfCapability), capability...)
	default:
		id = binary.BigEndian.AppendUint16(append(id, floorOfPair), uint16(len(subject))) //nolint:gosec // at most 1,024: checkNames.
		id = append(append(id, subject...), capability...)
	}
	return state.Key{Scope: scope, Kind: state.KindFloor, ID: string(id)}
}

// checkNames refuses names for which no floor can be kept. They can only come with a foreign permit.
func checkNames(subject, capability string) error {
	if len(subject)+len(capability)+3 > state.MaxIDBytes {
		return fmt.Errorf("%w: %s and %s have more than %d bytes together", ErrInvalid, FieldSubject, FieldCapability, state.MaxIDBytes-3)
	}
	return nil
}

// floorChecks are the ops that hold if no floor stands against a nonce.
func floorChecks(dst []state.Op, scope string, n *Nonce) ([]state.Op, error) {
	b := &n.BoundTo
	if err := checkNames(b.SubjectID, b.CapabilityID); err != nil {
		return nil, err
	}
	if n.IssuedAt == 0 {
		return nil, &Error{Reason: ReasonRevoked} // a floor that was never raised stands at 0
	}
	issued := n.IssuedAt * 1000
	return append(dst,
		state.Check{Key: state.ScopeKey(scope), After: issued},
		state.Check{Key: floorKey(scope, b.SubjectID, ""), After: issued},
		state.Check{Key: floorKey(scope, "", b.CapabilityID), After: issued},
		state.Check{Key: floorKey(scope, b.SubjectID, b.CapabilityID), After: issued},
	), nil
}

// RevokeParams says which permits to revoke: those of a subject, of a capability, of the subject's use of the capability
// if both are given, or of the whole scope if neither is.
type RevokeParams struct {
	Scope      string
	Subject    string
	Capability string
}

// Revoked says up to when permits are refused.
type Revoked struct {
	Floor time.Time
}

// Revoke refuses from now on every such permit that was issued until now, also by an issuer whose clock is ahead by the
// skew: the floor is the next full second after now plus 5 s, and until it has passed no such permit is minted here. It
// never lowers a floor. It may be sent again and then takes effect anew.
func (p *Permits) Revoke(ctx context.Context, r RevokeParams) (Revoked, error) {
	if err := checkScope(r.Scope); err != nil {
		return Revoked{}, err
	}
	for field, name := range map[Field]string{FieldSubject: r.Subject, FieldCapability: r.Capability} {
		if name != "" && !isName(name) {
			return Revoked{}, fmt.Errorf("%w: %s must be 1 to %d bytes of UTF-8 without control characters", ErrInvalid, field, MaxField)
		}
	}
	raise := state.Raise{Key: floorKey(r.Scope, r.Subject, r.Capability), Ahead: state.Skew}
	out, err := p.store.Do(ctx, &state.Batch{Scope: r.Scope, Ops: []state.Op{raise}})
	if err != nil {
		return Revoked{}, failed(err)
	}
	if !out.Applied {
		return Revoked{}, refused(&out)
	}
	return Revoked{Floor: at(int64(out.Values[0]))}, nil //nolint:gosec // a floor is a time.
}
