package access

import (
	"slices"
	"strings"

	"github.com/counterfoil/counterfoil/state"
)

// Everywhere as the scope of a token means every scope.
const Everywhere = "*"

// DefaultScope and DefaultOwner are what a token of every scope acts in and as until it says otherwise.
const (
	DefaultScope = "default"
	DefaultOwner = "default"
)

// Entry is an amount of a budget.
type Entry struct {
	Budget string `json:"budget"`
	Amount uint64 `json:"amount"`
}

// Requirement is what each begin of a token must carry.
type Requirement string

// The requirements.
const (
	RequireNothing Requirement = ""
	RequirePermit  Requirement = "permit"
	RequireBudget  Requirement = "budget"
)

// Principal is who a request acts as and what they may do. It must not be changed.
type Principal struct {
	Token string // name of the credential, for logs and records of who did what
	Scope string // that it acts in
	Owner string // that it acts as
	Roles []Role
	// EveryScope: the credential's scope is *.
	EveryScope bool
	Budgets    []string // prefixes of the budgets that it may use; none: all
	Always     []Entry  // charged on top of each begin and spend
	Require    Requirement
}

// Operator is whoever has the store itself in hand: it acts as admin of every scope, in the given one as the given owner.
func Operator(scope, owner string) (Principal, error) {
	p := Principal{Token: "operator", Scope: DefaultScope, Owner: DefaultOwner, Roles: []Role{Admin}, EveryScope: true}
	return p.As([]string{owner}, []string{scope})
}

// Allows reports whether p has the right of at least one of the roles. It reports false if none is named.
func (p Principal) Allows(anyOf ...Role) bool {
	return slices.ContainsFunc(p.Roles, func(has Role) bool {
		return slices.ContainsFunc(anyOf, has.grants)
	})
}

// MayUse reports whether p may use a budget and see its figures: whether it is one of its budgets or below one, by whole
// segments.
func (p Principal) MayUse(budget string) bool {
	return len(p.Budgets) == 0 || slices.ContainsFunc(p.Budgets, func(prefix string) bool {
		rest, ok := strings.CutPrefix(budget, prefix)
		return ok && (rest == "" || rest[0] == '/')
	})
}

// restricted reports whether p may do less than its roles say.
func (p Principal) restricted() bool {
	return len(p.Budgets) > 0 || len(p.Always) > 0 || p.Require != RequireNothing
}

// As returns p acting as another owner or in another scope, as the values of the headers Counterfoil-Owner and
// Counterfoil-Scope ask; with neither it is p. Only admin may name an owner, and only admin of every scope a scope, be it
// their own: else [ErrForbidden]. A header that is there twice or holds no name is [ErrInvalid]. Whether the scope exists
// the store tells. The scope * is none that exists: in it the tokens of every scope are managed, and nothing else.
func (p Principal) As(owner, scope []string) (Principal, error) {
	as := p
	if len(owner) > 0 {
		if !p.Allows(Admin) {
			return Principal{}, forbidden("only admin may act for another owner")
		}
		if len(owner) > 1 {
			return Principal{}, invalidf("the header Counterfoil-Owner is there twice")
		}
		if err := state.CheckName(owner[0]); err != nil {
			return Principal{}, invalidf("owner: %w", err)
		}
		as.Owner = owner[0]
	}
	if len(scope) > 0 {
		if !p.Allows(Admin) || !p.EveryScope {
			return Principal{}, forbidden("only admin of scope * may act in another scope")
		}
		if len(scope) > 1 {
			return Principal{}, invalidf("the header Counterfoil-Scope is there twice")
		}
		if err := checkScope(scope[0]); err != nil && scope[0] != Everywhere {
			return Principal{}, err
		}
		as.Scope = scope[0]
	}
	return as, nil
}

// checkScope refuses what cannot be the name of a scope.
func checkScope(name string) error {
	if err := state.CheckScopeName(name); err != nil {
		return invalidf("%w", err)
	}
	if name == Everywhere {
		return invalidf("scope: * stands for every scope, it names none")
	}
	return nil
}
