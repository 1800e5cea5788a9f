package state

import "errors"

var (
	errForeignOp  = errors.New("it is not one of this package's ops, passed by value")
	errAmount     = errors.New("an amount or limit is above 2^53−1")
	errToken      = errors.New("a token is missing")
	errTime       = errors.New("a time is negative or out of range")
	errBody       = errors.New("a body is too large")
	errClaimState = errors.New("a record is claimed pending or settled")
	errLease      = errors.New("only a pending record has a lease")
	errNoExpiry   = errors.New("this kind of record needs an expiry")
	errExpiry     = errors.New("a pending operation never expires by itself")
	errShortBody  = errors.New("the short body is too long")
	errRetain     = errors.New("a body is retained longer than its record")
	errReason     = errors.New("a refusal needs a reason")
	errReplace    = errors.New("the state must be settled, or void for a kind of record that is claimed")
	errCounter    = errors.New("a counter has no time")
	errScopeID    = errors.New("a scope has one record of its own: use ScopeKey")
	errOtherScope = errors.New("a key is of another scope than the batch")
	errCheck      = errors.New("a floor is checked against a time after 0")
	errBucket     = errors.New("a bucket is not valid")
	errNoBucket   = errors.New("an amount needs a bucket")
	errGeneration = errors.New("the budget's generation is missing")
	errTakeWindow = errors.New("what is taken is of a certain window: name its start")
	errGrowSkip   = errors.New("a Move that adds to a budget or holds cannot be skipped")
	errUnlimited  = errors.New("an unlimited budget has no limit")
	errUnit       = errors.New("the unit has 1 to 64 bytes of UTF-8 without control characters")
	errOwnParent  = errors.New("a budget cannot be its own parent")
	errAncestor   = errors.New("an ancestor is not a budget")
)

// maxWhy bounds who and why a Drop records, in bytes.
const maxWhy = 8192

// validateOp reports the rule of form that an op breaks, or nil. It accepts the
// op types of this package only: a pointer to one satisfies [Op] too, and
// would be passed over by every switch on the type.
func validateOp(op Op) error {
	switch o := op.(type) {
	case Claim:
		return o.validate()
	case Update:
		return o.validate()
	case Settle:
		return o.validate()
	case Drop:
		return o.validate()
	case Move:
		return o.validate()
	case Remove:
		return o.validate()
	case PutBudget:
		return o.validate()
	case PutScope:
		return o.validate()
	case Check:
		return o.validate()
	case Bump:
		return o.validate()
	case Raise:
		return o.validate()
	case Add:
		return checkAmounts(o.Amount)
	case Spend:
		return checkAmounts(o.Amount, o.Limit)
	case Refund:
		return checkAmounts(o.Amount)
	case Refuse:
		return o.validate()
	case Replace:
		return o.validate()
	case PutKeyCheck, Sweep:
		return nil
	}
	return errForeignOp
}

func (o Claim) validate() error {
	switch {
	case o.Token.IsZero():
		return errToken
	case badTime(o.Expires) || badTime(o.Lease):
		return errTime
	case len(o.Body) > MaxBodyBytes:
		return errBody
	case o.State != Pending && o.State != Settled:
		return errClaimState
	case o.State == Settled && o.Lease != 0:
		return errLease
	case o.Expires == 0 && (o.Key.Kind == KindMarker || o.Key.Kind == KindChallenge):
		return errNoExpiry
	case o.Expires != 0 && o.Key.Kind == KindOperation && o.State == Pending:
		return errExpiry
	}
	if o.Owner != "" {
		if err := CheckName(o.Owner); err != nil {
			return errors.New("owner: " + err.Error())
		}
	}
	return nil
}

func (o Update) validate() error {
	switch {
	case o.Token.IsZero():
		return errToken
	case badTime(o.Lease) || badTime(o.Expires):
		return errTime
	case o.Expires == 0 && o.Key.Kind == KindChallenge:
		return errNoExpiry
	case o.Expires != 0 && o.Key.Kind == KindOperation:
		return errExpiry
	case len(o.Body) > MaxBodyBytes:
		return errBody
	}
	return nil
}

func (o Settle) validate() error {
	switch {
	case o.Token.IsZero():
		return errToken
	case badTime(o.Retain) || badTime(o.Expires):
		return errTime
	case len(o.Body) > MaxBodyBytes:
		return errBody
	case len(o.Short) > FreeBodyBytes:
		return errShortBody
	case o.Retain != 0 && o.Expires != 0 && o.Retain > o.Expires:
		return errRetain
	}
	return nil
}

func (o Drop) validate() error {
	switch {
	case o.Token.IsZero():
		return errToken
	case len(o.Why) > maxWhy:
		return errBody
	}
	return nil
}

func (o Move) validate() error {
	grows := o.GiveAmount > o.TakeAmount || o.GiveAmount > 0 && o.Give.Kind == BucketHeld
	switch {
	case o.TakeAmount > MaxAmount || o.GiveAmount > MaxAmount || o.Extra > MaxAmount:
		return errAmount
	case o.Take.bad() || o.Give.bad():
		return errBucket
	case o.Take.Kind == BucketNone && o.TakeAmount != 0 || o.Give.Kind == BucketNone && o.GiveAmount != 0:
		return errNoBucket
	case o.Generation.IsZero():
		return errGeneration
	case o.Window != CurrentWindow && badTime(o.Window):
		return errTime
	case o.Window == CurrentWindow && o.TakeAmount != 0:
		return errTakeWindow
	case o.IfGone > GoneSkip || o.IfClosed > GoneSkip:
		return errGrowSkip
	case grows && (o.IfGone != GoneRefuse || o.IfClosed != GoneRefuse):
		return errGrowSkip
	}
	return nil
}

func (b Bucket) bad() bool {
	return b.Kind > BucketHeld || (b.Kind == BucketHeld) != (b.Until != 0) || badTime(b.Until)
}

func (o Remove) validate() error {
	for _, a := range o.Ancestors {
		if a.Key.Kind != KindBudget {
			return errAncestor
		}
	}
	return nil
}

func (o PutBudget) validate() error {
	if err := CheckBudgetName(o.Key.ID); err != nil {
		return err
	}
	if o.Parent != "" {
		if err := CheckBudgetName(o.Parent); err != nil {
			return err
		}
	}
	switch {
	case CheckName(o.Unit) != nil || len(o.Unit) > MaxUnitBytes:
		return errUnit
	case o.Limit > MaxAmount:
		return errAmount
	case o.Unlimited && o.Limit != 0:
		return errUnlimited
	case o.Parent == o.Key.ID:
		return errOwnParent
	}
	return o.Window.Validate()
}

func (o PutScope) validate() error {
	return o.Scope.validate()
}

func (o Check) validate() error {
	switch {
	case badTime(o.After):
		return errTime
	case o.Key.Kind == KindFloor && o.After == 0:
		return errCheck
	case o.Epoch > MaxAmount:
		return errAmount
	}
	return nil
}

func (o Bump) validate() error {
	switch {
	case o.Token.IsZero():
		return errToken
	case o.From == 0 || o.From >= MaxAmount:
		return errAmount
	}
	return nil
}

func (o Raise) validate() error {
	switch {
	case o.To > MaxAmount:
		return errAmount
	case badTime(o.Ahead):
		return errTime
	case o.Ahead != 0 && o.Key.Kind == KindCounter:
		return errCounter
	}
	return nil
}

func (o Refuse) validate() error {
	if o.Reason == "" {
		return errReason
	}
	return nil
}

func (o Replace) validate() error {
	claimed := o.Key.Kind.Valid() && allowed[o.Key.Kind]&opClaim != 0
	switch {
	case o.State != Settled && (o.State != Void || !claimed):
		return errReplace
	case badTime(o.Retain) || badTime(o.Expires):
		return errTime
	case o.Retain != 0 && o.Expires != 0 && o.Retain > o.Expires:
		return errRetain
	case len(o.Body) > MaxBodyBytes:
		return errBody
	}
	if o.Owner != "" {
		if err := CheckName(o.Owner); err != nil {
			return errors.New("owner: " + err.Error())
		}
	}
	return nil
}

func checkAmounts(amounts ...uint64) error {
	for _, a := range amounts {
		if a > MaxAmount {
			return errAmount
		}
	}
	return nil
}

func badTime(t int64) bool { return t < 0 || t > MaxAmount }
