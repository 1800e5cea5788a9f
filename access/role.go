package access

import (
	"slices"
	"strings"
)

// Role is a right that a token can have.
type Role string

// The roles.
const (
	Mint      Role = "mint"      // issue permits
	Consume   Role = "consume"   // check and use permits
	Operate   Role = "operate"   // begin, renew, complete and abort operations
	Spend     Role = "spend"     // spend, hold, capture, void, extend
	Refund    Role = "refund"    // give spends back
	Challenge Role = "challenge" // issue, look up and consume challenges
	Read      Role = "read"      // its own owner's records, and budgets
	Observe   Role = "observe"   // the whole scope's records; includes read
	Resolve   Role = "resolve"   // settle operations whose outcome is unknown
	Admin     Role = "admin"     // everything in its scope; includes every role
)

var all = [...]Role{Mint, Consume, Operate, Spend, Refund, Challenge, Read, Observe, Resolve, Admin}

// Roles lists every role.
func Roles() []Role { return slices.Clone(all[:]) }

// grants reports whether having a role gives the right of another.
func (r Role) grants(asked Role) bool {
	return r == asked || r == Observe && asked == Read || r == Admin && slices.Contains(all[:], asked)
}

func checkRoles(roles []Role) error {
	if len(roles) == 0 {
		return invalidf("roles: name at least one of %s", roleNames())
	}
	for i, r := range roles {
		if !slices.Contains(all[:], r) {
			return invalidf("roles: one of them is not of %s", roleNames())
		}
		if slices.Contains(roles[:i], r) {
			return invalidf("roles: %s is named twice", r)
		}
	}
	return nil
}

func roleNames() string {
	names := make([]string, 0, len(all))
	for _, r := range all {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}
