package access

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// MaxPage is how many items one call of a list gives at most.
const MaxPage = 500

// Create makes a credential and its token, which nothing shows again. An empty scope is the principal's own; another one,
// or every one, is for admin of every scope. A token that is itself restricted by budgets, always or require creates
// none, or it could free itself. It fails with [ErrForbidden], [ErrInvalid], [ErrExists], [ErrTooMany] and
// state.ErrNoScope. After state.ErrUnknown revoke the name and begin anew: the token was lost with the answer.
func (a *Access) Create(ctx context.Context, by Principal, g Grant) (Credential, Token, error) {
	if g.Scope == "" {
		g.Scope = by.Scope
	}
	if err := mayCreate(&by, g.Scope); err != nil {
		return Credential{}, Token{}, err
	}
	g, err := g.tidy()
	if err != nil {
		return Credential{}, Token{}, err
	}
	if g.Scope != Everywhere {
		if _, err := a.store.Scope(ctx, g.Scope); err != nil {
			return Credential{}, Token{}, err
		}
	}
	token, err := newToken(a.store.Fill)
	if err != nil {
		return Credential{}, Token{}, err
	}
	c := Credential{Grant: g, By: by.Token}
	batch, err := a.creation(&c, token)
	if err != nil {
		return Credential{}, Token{}, err
	}
	out, err := a.store.Do(ctx, batch)
	if err != nil {
		return Credential{}, Token{}, err
	}
	if !out.Applied && !out.Repeated {
		return Credential{}, Token{}, creationRefused(&out)
	}
	c.Created = time.UnixMilli(out.Anchor.Created).UTC()
	return c, token, nil
}

func mayCreate(by *Principal, scope string) error {
	switch {
	case !by.Allows(Admin):
		return forbidden("it lacks the role admin")
	case by.restricted():
		return forbidden("a token with budgets, always or require creates no tokens")
	case scope != by.Scope && !by.EveryScope:
		return forbidden("only admin of scope * creates tokens for another scope")
	}
	return nil
}

// creation claims both records and counts the credential, all or nothing.
func (a *Access) creation(c *Credential, t Token) (*state.Batch, error) {
	body, err := c.body()
	if err != nil {
		return nil, err
	}
	pointer, err := json.Marshal(pointerJSON{bodyVersion, c.Scope, c.Name})
	if err != nil {
		return nil, err
	}
	holder, err := a.store.Token()
	if err != nil {
		return nil, err
	}
	hash := t.hash()
	claim := state.Claim{Owner: c.Scope, Token: holder, Digest: hash, State: state.Pending}
	byName, byHash := claim, claim
	byName.Key, byName.Body = nameKey(c.Scope, c.Name), body
	byHash.Key, byHash.Body = hashKey(hash), pointer
	count := state.Spend{Key: countKey(c.Scope), Amount: 1, Limit: MaxTokens}
	return &state.Batch{Scope: state.StoreScope, Ops: []state.Op{byName, byHash, count}}, nil
}

func creationRefused(out *state.Outcome) error {
	if r, ok := out.Refused(0); ok && r.Reason == state.Exists {
		return ErrExists
	}
	if _, ok := out.Because(state.OverLimit); ok {
		return fmt.Errorf("%w: a scope has at most %d", ErrTooMany, MaxTokens)
	}
	return refused(out)
}

// Revoke ends the credential of that name in the principal's scope. From then on this server refuses its token, and every
// other within 5 s. It may be called again for a day; after that, and for a name that never was, it is [ErrNotFound].
func (a *Access) Revoke(ctx context.Context, by Principal, name string) error {
	if !by.Allows(Admin) {
		return forbidden("it lacks the role admin")
	}
	if err := state.CheckName(name); err != nil {
		return invalidf("name: %w", err)
	}
	byName := nameKey(by.Scope, name)
	recs, err := a.store.Read(ctx, byName)
	if err != nil {
		return err
	}
	if recs[0] == nil {
		return notFound(&by)
	}
	hash := recs[0].Digest
	// Also when it fails: who asked for the end of a token must not see it accepted from memory.
	defer a.valid.forget(hash)
	end := state.Drop{Key: byName, Token: recs[0].Token, Why: []byte("revoked by " + by.Token)}
	count := state.Refund{Key: countKey(by.Scope), Amount: 1}
	pointer := end
	pointer.Key = hashKey(hash)
	out, err := a.store.Do(ctx, &state.Batch{Scope: state.StoreScope, Ops: []state.Op{end, pointer, count}})
	if astray(&out, err, pointer.Key) {
		// Without the record by name the token is refused whatever the other one says.
		out, err = a.store.Do(ctx, &state.Batch{Scope: state.StoreScope, Ops: []state.Op{end, count}})
	}
	if err != nil || out.Applied || out.Repeated {
		return err
	}
	if r, ok := out.Refused(0); ok && r.Reason == state.Absent {
		return notFound(&by)
	}
	return refused(&out)
}

// astray reports whether the record by hash alone stood in the way: damaged, or mended into something else.
func astray(out *state.Outcome, err error, byHash state.Key) bool {
	if err != nil {
		var damaged *state.RecordError
		return errors.As(err, &damaged) && damaged.Key == byHash
	}
	return len(out.Refusals) == 1 && out.Refusals[0].Op == 1
}

func notFound(by *Principal) error {
	if by.EveryScope && by.Scope != Everywhere {
		return fmt.Errorf("%w in this scope; name the scope, or * for tokens of every scope", ErrNotFound)
	}
	return ErrNotFound
}

// List gives the credentials of the principal's scope by name: at most limit of them (0 means 50, and at most [MaxPage]),
// from cursor on ("" for the start). A page may have fewer, or none, and still not be the last; the next cursor is "" when
// it is. Cursors are safe in URLs.
func (a *Access) List(ctx context.Context, by Principal, cursor string, limit int) (list []Credential, next string, err error) {
	if !by.Allows(Admin) {
		return nil, "", forbidden("it lacks the role admin")
	}
	within, limit, err := page(cursor, limit)
	if err != nil {
		return nil, "", err
	}
	found, within, err := a.store.Scan(ctx, state.StoreScope, state.KindCredential, namePrefix(by.Scope), within, limit)
	if err != nil {
		return nil, "", err
	}
	for _, e := range found {
		if c, ok := listed(e, by.Scope); ok {
			list = append(list, c)
		}
	}
	return list, formatCursor(within), nil
}

// listed is an entry of a scan as a list shows it. A record that cannot be read is shown as damaged.
func listed(e store.Entry, scope string) (Credential, bool) {
	name, ok := strings.CutPrefix(e.Key.ID, namePrefix(scope))
	if !ok || e.Err == nil && e.Record.State != state.Pending {
		return Credential{}, false
	}
	if e.Err == nil {
		if c, err := decode(e.Key, e.Record); err == nil {
			return *c, true
		}
	}
	return Credential{Grant: Grant{Name: name, Scope: scope}, Damaged: true}, true
}

// formatCursor makes the store's own cursor fit for URLs.
func formatCursor(within string) string { return base64.RawURLEncoding.EncodeToString([]byte(within)) }

// page reads what a caller asks of a list.
func page(cursor string, limit int) (within string, n int, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	switch {
	case err != nil || len(cursor) > 4096:
		return "", 0, invalidf("cursor: it is not one of this list")
	case limit < 0 || limit > MaxPage:
		return "", 0, invalidf("limit: 1 to %d", MaxPage)
	case limit == 0:
		limit = 50
	}
	return string(raw), limit, nil
}

// Scope is a scope as a list shows it.
type Scope struct {
	Name string
	state.Scope
}

// CreateScope creates a scope and its signing key. It is for admin of every scope, else [ErrForbidden]. It fails with
// store.ErrScopeExists if there is one; then, too, the scope has a signing key afterwards.
func (a *Access) CreateScope(ctx context.Context, by Principal, name string) (Scope, error) {
	if !by.Allows(Admin) || !by.EveryScope {
		return Scope{}, forbidden("only admin of scope * creates scopes")
	}
	if err := checkScope(name); err != nil {
		return Scope{}, err
	}
	created := a.store.CreateScope(ctx, name)
	if created != nil && !errors.Is(created, store.ErrScopeExists) {
		return Scope{}, created
	}
	if len(a.keys.List(name)) == 0 {
		if _, err := a.keys.RotateSigning(ctx, name); err != nil {
			return Scope{}, err
		}
	}
	if created != nil {
		return Scope{}, created
	}
	body, err := a.store.Scope(ctx, name)
	return Scope{name, body}, err
}

// Scopes lists the scopes that the principal can see: all for admin of every scope, its own for any other. Limit and
// cursor are as of [Access.List].
func (a *Access) Scopes(ctx context.Context, by Principal, cursor string, limit int) (list []Scope, next string, err error) {
	if !by.Allows(Admin) {
		return nil, "", forbidden("it lacks the role admin")
	}
	within, limit, err := page(cursor, limit)
	if err != nil {
		return nil, "", err
	}
	names := []string{by.Scope}
	if by.EveryScope {
		if names, within, err = a.store.Scopes(ctx, within, limit); err != nil {
			return nil, "", err
		}
		next = formatCursor(within)
	}
	for _, name := range names {
		body, err := a.store.Scope(ctx, name)
		if err != nil {
			return nil, "", err
		}
		list = append(list, Scope{name, body})
	}
	return list, next, nil
}
