package state

// opCode is an op's bit in the table below.
type opCode uint32

const (
	opClaim opCode = 1 << iota
	opUpdate
	opSettle
	opDrop
	opMove
	opRemove
	opPutBudget
	opPutScope
	opPutKeyCheck
	opCheck
	opBump
	opRaise
	opAdd
	opSpend
	opRefund
	opReplace
	opSweep
	opRefuse
)

const life = opClaim | opUpdate | opSettle | opDrop | opReplace | opSweep

// allowed says which ops a kind allows; every other one is ErrInvalid. Writer
// and quota records are kept by the store and by Decide themselves; Replace is
// the operator's last resort on any kind.
var allowed = [kindEnd]opCode{
	KindScope:      opBump | opCheck | opPutScope | opRaise | opReplace,
	KindWriter:     opReplace,
	KindQuota:      opReplace,
	KindKeyCheck:   opPutKeyCheck | opCheck | opRemove | opReplace,
	KindFloor:      opRaise | opCheck | opReplace,
	KindCredential: life,
	KindApproval:   life,
	KindMarker:     opClaim | opReplace | opSweep,
	KindOperation:  life,
	KindChallenge:  life,
	KindHold:       life,
	KindSpend:      life,
	KindBudget:     opPutBudget | opMove | opRemove | opReplace,
	KindCounter:    opAdd | opSpend | opRefund | opRaise | opRemove | opReplace,
}

// anchors are the ops that may decide repetition, as the first of a batch.
const anchors = opClaim | opSettle | opDrop | opUpdate | opBump

// counted says which kinds have a quota.
func (k Kind) counted() bool { return k >= KindFloor && k < kindEnd }

// whileRecovering reports whether an op may take effect in a scope that is in
// quarantine: what finishes or replays work begun before may, what begins
// something new on state that was rolled back may not.
func whileRecovering(op Op) bool {
	kind := op.target().Kind
	switch op.code() {
	case opClaim:
		return kind != KindOperation && kind != KindChallenge && kind != KindHold && kind != KindSpend && kind != KindApproval
	case opSettle, opUpdate: // an Update of a challenge issues another in its place; a decision that was lost is not taken again
		return kind != KindChallenge && kind != KindApproval
	case opBump, opSpend:
		return false
	}
	return true
}
