package access

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/internal/canonical"
	"github.com/counterfoil/counterfoil/state"
)

// Limits of a credential and of a scope.
const (
	MaxBudgets = 16
	MaxAlways  = 16
	MaxTokens  = 10_000 // in one scope
)

// Grant is what a credential allows.
type Grant struct {
	Name    string // unique in its scope
	Scope   string // or Everywhere
	Owner   string
	Roles   []Role
	Budgets []string    // prefixes, whole path segments; nil: every budget
	Always  []Entry     // charged on top of each begin and spend
	Require Requirement // of each begin
}

// Credential is a token without its secret.
type Credential struct {
	Grant
	By      string // the credential that created it
	Created time.Time
	// Damaged: its record cannot be read, so that the token is refused with an error. Only name and scope are known.
	Damaged bool
}

// AdminGrant is what a new store's first token allows: everything, everywhere.
func AdminGrant() Grant {
	return Grant{Name: "admin", Scope: Everywhere, Owner: DefaultOwner, Roles: []Role{Admin}}
}

// tidy brings a grant into the one form that is kept, or refuses it. It shares no memory with g.
func (g Grant) tidy() (Grant, error) {
	if err := state.CheckName(g.Name); err != nil {
		return Grant{}, invalidf("name: %w", err)
	}
	if g.Name == "." || g.Name == ".." {
		return Grant{}, invalidf("name: . and .. cannot stand in a path")
	}
	if g.Scope != Everywhere {
		if err := checkScope(g.Scope); err != nil {
			return Grant{}, err
		}
	}
	if err := state.CheckName(g.Owner); err != nil {
		return Grant{}, invalidf("owner: %w", err)
	}
	if err := checkRoles(g.Roles); err != nil {
		return Grant{}, err
	}
	if g.Scope == Everywhere && !slices.Contains(g.Roles, Admin) {
		return Grant{}, invalidf("scope: * is for tokens with the role admin, since only they can say in which scope they act")
	}
	g.Roles = slices.DeleteFunc(Roles(), func(r Role) bool { return !slices.Contains(g.Roles, r) })
	return g, g.tidyBudgets()
}

func (g *Grant) tidyBudgets() error {
	switch {
	case g.Budgets != nil && len(g.Budgets) == 0:
		return invalidf("budgets: leave the list out to allow every budget")
	case len(g.Budgets) > MaxBudgets:
		return invalidf("budgets: at most %d", MaxBudgets)
	case len(g.Always) > MaxAlways:
		return invalidf("always: at most %d", MaxAlways)
	case g.Require != RequireNothing && g.Require != RequirePermit && g.Require != RequireBudget:
		return invalidf("require: permit or budget, or leave it out")
	}
	g.Budgets, g.Always = slices.Clone(g.Budgets), slices.Clone(g.Always)
	for i, prefix := range g.Budgets {
		prefix = strings.TrimSuffix(prefix, "/")
		if err := state.CheckBudgetName(prefix); err != nil {
			return invalidf("budgets: %w", err)
		}
		if g.Budgets[i] = prefix; slices.Contains(g.Budgets[:i], prefix) {
			return invalidf("budgets: one is named twice")
		}
	}
	for i, e := range g.Always {
		if err := state.CheckBudgetName(e.Budget); err != nil {
			return invalidf("always: %w", err)
		}
		if e.Amount > state.MaxAmount {
			return invalidf("always: an amount is above 2^53−1")
		}
		if slices.ContainsFunc(g.Always[:i], func(o Entry) bool { return o.Budget == e.Budget }) {
			return invalidf("always: a budget is named twice")
		}
	}
	return nil
}

// principal is who acts by the credential.
func (c *Credential) principal() Principal {
	p := Principal{
		Token: c.Name, Scope: c.Scope, Owner: c.Owner, Roles: c.Roles, Budgets: c.Budgets, Always: c.Always, Require: c.Require,
	}
	if c.Scope == Everywhere {
		p.Scope, p.EveryScope = DefaultScope, true
	}
	return p
}

// Two records of the store's own scope stand for a credential: the one by name says what it allows and has the token's
// hash as its digest; the one by hash only leads to the name. A token is good if and only if both are pending and agree.

// nameKey: "n", the scope's length in two bytes big-endian, the scope, the name.
func nameKey(scope, name string) state.Key {
	return state.Key{Scope: state.StoreScope, Kind: state.KindCredential, ID: namePrefix(scope) + name}
}

func namePrefix(scope string) string {
	return "n" + string(binary.BigEndian.AppendUint16(nil, uint16(len(scope)))) + scope //nolint:gosec // names have at most 256 bytes.
}

// hashKey: "h" and the hash.
func hashKey(hash state.Digest) state.Key {
	return state.Key{Scope: state.StoreScope, Kind: state.KindCredential, ID: "h" + string(hash[:])}
}

// countKey counts the credentials of a scope.
func countKey(scope string) state.Key {
	return state.Key{Scope: state.StoreScope, Kind: state.KindCounter, ID: "tokens/" + scope}
}

// bodyVersion is the version of a record's body. A body with members that this version does not know may restrict the
// token in ways that it does not know: it is refused.
const bodyVersion = 1

type bodyJSON struct {
	Version int         `json:"v"`
	Name    string      `json:"name"`
	Scope   string      `json:"scope"`
	Owner   string      `json:"owner"`
	Roles   []Role      `json:"roles"`
	Budgets []string    `json:"budgets,omitempty"`
	Always  []Entry     `json:"always,omitempty"`
	Require Requirement `json:"require,omitempty"`
	By      string      `json:"by"`
}

func (c *Credential) body() ([]byte, error) {
	return json.Marshal(bodyJSON{bodyVersion, c.Name, c.Scope, c.Owner, c.Roles, c.Budgets, c.Always, c.Require, c.By})
}

// pointerJSON is the body of a record by hash.
type pointerJSON struct {
	Version int    `json:"v"`
	Scope   string `json:"scope"`
	Name    string `json:"name"`
}

func decodePointer(key state.Key, rec *state.Record) (scope, name string, err error) {
	var in pointerJSON
	if err := canonical.Decode(rec.Body, &in); err != nil || in.Version != bodyVersion {
		return "", "", corrupt(key)
	}
	return in.Scope, in.Name, nil
}

// decode reads the record by name.
func decode(key state.Key, rec *state.Record) (*Credential, error) {
	var in bodyJSON
	if err := canonical.Decode(rec.Body, &in); err != nil || in.Version != bodyVersion || nameKey(in.Scope, in.Name) != key {
		return nil, corrupt(key)
	}
	g, err := Grant{in.Name, in.Scope, in.Owner, in.Roles, in.Budgets, in.Always, in.Require}.tidy()
	if err != nil {
		return nil, corrupt(key)
	}
	return &Credential{Grant: g, By: in.By, Created: time.UnixMilli(rec.Created).UTC()}, nil
}

// corrupt is a record whose seal is right and whose content is not: of a newer version, or written by somebody else.
func corrupt(key state.Key) error {
	return fmt.Errorf("%w: a token's rights cannot be read; was it created by a newer version?", &state.RecordError{Key: key, Err: state.ErrCorrupt})
}
