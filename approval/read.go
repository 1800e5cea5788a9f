package approval

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/counterfoil/counterfoil/state"
	"github.com/counterfoil/counterfoil/store"
)

// GetParams names a request.
type GetParams struct {
	Scope string
	Owner string // whose request it must be, "" for everybody's
	ID    string
}

// Get tells how a request stands, durably, without its permit. One that is not there, or was over for some minutes, is
// [ErrNotFound].
func (a *Approvals) Get(ctx context.Context, p GetParams) (Request, error) {
	if err := checkScope(p.Scope); err != nil {
		return Request{}, err
	}
	key, err := keyOf(p.Scope, p.ID)
	if err != nil {
		return Request{}, err
	}
	q, _, err := a.find(ctx, p.Scope, p.Owner, key)
	if err != nil {
		return Request{}, err
	}
	return *q, nil
}

// Bounds of a list.
const (
	DefaultLimit = 50
	MaxLimit     = 500
	maxScanned   = 5_000 // records that one call looks at; a page may be short, or empty, although there are more
	scanned      = 100   // of them at a time: each can have 64 KiB
)

// ListParams asks for a page of requests.
type ListParams struct {
	Scope  string
	Owner  string // "" for every owner's
	State  State  // "" for every state
	Cursor string // of the page before, "" for the first
	Limit  int    // 1 to 500; 0: 50
}

// Page is a part of a list. There are more if and only if Next is not "", even if the page is short.
type Page struct {
	Requests []Request
	Next     string
	// Damaged lists the ids of requests whose records cannot be read.
	Damaged []string
}

// List lists the requests of a scope by id. It shows what was stored at some moment during the call.
func (a *Approvals) List(ctx context.Context, p ListParams) (Page, error) {
	if p.Limit == 0 {
		p.Limit = DefaultLimit
	}
	if p.Limit < 0 || p.Limit > MaxLimit {
		return Page{}, invalidf("a page has 1 to %d requests", MaxLimit)
	}
	switch p.State {
	case "", Pending, Granted, Denied, Expired:
	default:
		return Page{}, invalidf("there is no state of that name")
	}
	if err := checkScope(p.Scope); err != nil {
		return Page{}, err
	}
	cursor, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil {
		return Page{}, invalidf("the cursor is not one that a list gave")
	}
	// A scope that does not exist is an error, not an empty list.
	out, err := a.store.Do(ctx, &state.Batch{Scope: p.Scope, Read: []state.Key{state.ScopeKey(p.Scope)}})
	if err != nil {
		return Page{}, failed(err)
	}
	return a.list(ctx, &p, string(cursor), out.Now)
}

func (a *Approvals) list(ctx context.Context, p *ListParams, cursor string, now int64) (page Page, err error) {
	for seen := 0; ; {
		limit := min(scanned, p.Limit-len(page.Requests)-len(page.Damaged))
		found, next, err := a.store.Scan(ctx, p.Scope, state.KindApproval, "", cursor, limit)
		if err != nil {
			return Page{}, failed(err)
		}
		seen += len(found)
		for _, e := range found {
			page.add(&e, p, now)
		}
		cursor = next
		if next == "" || len(page.Requests)+len(page.Damaged) >= p.Limit || seen >= maxScanned {
			page.Next = base64.RawURLEncoding.EncodeToString([]byte(next))
			return page, nil
		}
	}
}

// add puts an entry on the page if it is asked for. Whose a damaged one is nobody can tell.
func (page *Page) add(e *store.Entry, p *ListParams, now int64) {
	if e.Err == nil && (e.Record.State == state.Void || p.Owner != "" && e.Record.Owner != p.Owner) {
		return
	}
	var q *Request
	err := e.Err
	if err == nil {
		q, _, err = request(e.Key, e.Record, now)
	}
	switch {
	case err == nil && (p.State == "" || q.State == p.State):
		page.Requests = append(page.Requests, *q)
	case err != nil && p.Owner == "":
		page.Damaged = append(page.Damaged, hex.EncodeToString([]byte(e.Key.ID)))
	}
}

func checkNote(note string) error {
	switch {
	case len(note) > MaxNote:
		return invalidf("a note has at most %d bytes", MaxNote)
	case !utf8.ValidString(note) || strings.ContainsFunc(note, func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' || c == 0x7f }):
		return invalidf("a note is text without control characters")
	}
	return nil
}

func rawID(id string) string {
	raw, _ := hex.DecodeString(id) // checked
	return string(raw)
}
