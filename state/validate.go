package state

import "errors"

var (
	errAmount = errors.New("an amount or limit is above 2^53−1")
	errToken  = errors.New("a token is missing")
	errTime   = errors.New("a time is negative or out of range")
	errBody   = errors.New("a body is too large")
)

// validateOp reports the rule of form that an op breaks, or nil.
func validateOp(op Op) error {
	switch o := op.(type) {
	case Claim:
		return o.validate()
	case Update:
		return firstOf(o.Token.IsZero(), errToken, badTime(o.Lease, o.Expires), errTime, len(o.Body) > MaxBodyBytes, errBody)
	case Settle:
		if err := firstOf(o.Token.IsZero(), errToken, badTime(o.Retain, o.Expires), errTime, len(o.Body) > MaxBodyBytes, errBody); err != nil {
			return err
		}
		return firstOf(len(o.Short) > FreeBodyBytes, errors.New("the short body is too long"),
			o.Retain != 0 && o.Expires != 0 && o.Retain > o.Expires, errors.New("a body is retained longer than its record"))
	case Drop:
		return firstOf(o.Token.IsZero(), errToken, len(o.Why) > 8192, errBody)
	case Move:
		return o.validate()
	case PutBudget:
		return o.validate()
	case PutScope:
		return o.Scope.validate()
	case Check:
		return firstOf(o.After < 0 || o.After > MaxAmount, errTime, o.Key.Kind == KindFloor && o.After == 0, errTime)
	case Bump:
		return firstOf(o.Token.IsZero(), errToken, o.From == 0 || o.From >= MaxAmount, errAmount)
	case Raise:
		return firstOf(o.To > MaxAmount, errAmount, badTime(o.Ahead), errTime,
			o.Ahead != 0 && o.Key.Kind == KindCounter, errors.New("a counter has no time"))
	case Add:
		return firstOf(o.Amount > MaxAmount, errAmount)
	case Spend:
		return firstOf(o.Amount > MaxAmount || o.Limit > MaxAmount, errAmount)
	case Refund:
		return firstOf(o.Amount > MaxAmount, errAmount)
	case Refuse:
		return firstOf(o.Reason == "", errors.New("a refusal needs a reason"))
	case Replace:
		return firstOf(o.Version.IsZero(), errors.New("the version is missing"), o.State != Settled && o.State != Void, errors.New("the state must be settled or void"),
			badTime(o.Retain, o.Expires), errTime, len(o.Body) > MaxBodyBytes, errBody)
	}
	return nil
}

func (o Claim) validate() error {
	if err := firstOf(o.Token.IsZero(), errToken, badTime(o.Expires, o.Lease), errTime, len(o.Body) > MaxBodyBytes, errBody,
		o.State != Pending && o.State != Settled, errors.New("a record is claimed pending or settled"),
		o.State == Settled && o.Lease != 0, errors.New("a settled record has no lease")); err != nil {
		return err
	}
	if o.Owner != "" {
		if err := CheckName(o.Owner); err != nil {
			return errors.New("owner: " + err.Error())
		}
	}
	needsEnd := o.Key.Kind == KindMarker || o.Key.Kind == KindChallenge
	return firstOf(needsEnd && o.Expires == 0, errors.New("this kind of record needs an expiry"))
}

func (o Move) validate() error {
	if o.TakeAmount > MaxAmount || o.GiveAmount > MaxAmount || o.Extra > MaxAmount {
		return errAmount
	}
	for _, b := range []Bucket{o.Take, o.Give} {
		if b.Kind > BucketHeld || (b.Kind == BucketHeld) != (b.Until != 0) || badTime(b.Until) {
			return errors.New("a bucket is not valid")
		}
	}
	return firstOf(o.Take.Kind == BucketNone && o.TakeAmount != 0 || o.Give.Kind == BucketNone && o.GiveAmount != 0,
		errors.New("an amount needs a bucket"), o.Generation.IsZero(), errors.New("the budget's generation is missing"))
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
	if err := CheckName(o.Unit); err != nil {
		return errors.New("unit: " + err.Error())
	}
	if err := o.Window.Validate(); err != nil {
		return err
	}
	return firstOf(o.Limit > MaxAmount, errAmount, o.Unlimited && o.Limit != 0, errors.New("an unlimited budget has no limit"),
		len(o.Unit) > MaxUnitBytes, errors.New("the unit is too long"), o.Parent == o.Key.ID, errors.New("a budget cannot be its own parent"))
}

// firstOf gives the error that follows the first condition that is true.
func firstOf(pairs ...any) error {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i].(bool) { //nolint:forcetypeassert // called with pairs of bool and error only.
			return pairs[i+1].(error) //nolint:forcetypeassert // as above.
		}
	}
	return nil
}

func badTime(times ...int64) bool {
	for _, t := range times {
		if t < 0 || t > MaxAmount {
			return true
		}
	}
	return false
}
