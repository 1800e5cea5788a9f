package server

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the pages
	"encoding/base64"
	"html/template"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/counterfoil/counterfoil/api"
)

const mediaHTML = "text/html; charset=utf-8"

var (
	//go:embed pages/docs.html
	docsHTML string
	//go:embed pages/problem.html
	problemHTML string
	//go:embed pages/style.css
	styleCSS string

	docsTemplate    = template.Must(template.New("docs").Parse(docsHTML))
	problemTemplate = template.Must(template.New("problem").Parse(problemHTML))

	// pagePolicy allows a page its own style and nothing else, from nowhere else.
	pagePolicy = func() string {
		sum := sha256.Sum256([]byte(styleCSS))
		return "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'sha256-" +
			base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}()
)

type shownGroup struct {
	Name   string
	Routes []shownRoute
}

type shownRoute struct {
	ID, Method, Path, Doc, Needs, Statuses string
	Request, Answer                        []shownMember
	Codes                                  []api.Code
}

type shownMember struct {
	Name, Type, Doc string
	Required        bool
}

type shownCode struct {
	Style                               template.CSS
	Code                                api.Code
	Status, Title, Meaning, Do, Members string
	Again                               string
}

// docsPage writes the table of routes as a page.
func (s *Server) docsPage() ([]byte, error) {
	groups := make([]shownGroup, 0, 8)
	for i := range s.routes {
		r := &s.routes[i]
		if n := len(groups); n == 0 || groups[n-1].Name != r.Group {
			groups = append(groups, shownGroup{Name: r.Group})
		}
		g := &groups[len(groups)-1]
		g.Routes = append(g.Routes, show(r))
	}
	rows := api.Codes()
	codes := make([]shownCode, len(rows))
	for i, row := range rows {
		codes[i] = showCode(row)
	}
	var page bytes.Buffer
	err := docsTemplate.Execute(&page, map[string]any{
		"Style":   template.CSS(styleCSS), //nolint:gosec // a constant of this program
		"Version": s.version, "Groups": groups, "Codes": codes,
	})
	return page.Bytes(), err
}

func show(r *Route) shownRoute {
	out := shownRoute{
		ID: operationID(r), Method: r.Method, Path: r.Path, Doc: r.Doc, Needs: r.needs(), Codes: r.AllCodes(),
		Request: members(r.Request), Answer: members(r.Answer),
	}
	texts := make([]string, 0, 2)
	for _, status := range r.statuses() {
		texts = append(texts, strconv.Itoa(status))
	}
	out.Statuses = strings.Join(texts, ", ")
	return out
}

// members lists what a type has on the wire.
func members(t reflect.Type) []shownMember {
	if t == nil {
		return nil
	}
	var out []shownMember
	for _, f := range formOf(t).fields {
		sf := t.FieldByIndex(f.index)
		m := shownMember{Name: f.name, Type: typeName(sf.Type), Required: f.required, Doc: sf.Tag.Get("doc")}
		switch f.place {
		case inPath:
			m.Type += ", in the path"
		case inQuery:
			m.Type += ", in the query"
		case inBody:
		}
		m.Doc = strings.TrimSpace(m.Doc + " " + limits(sf, f))
		out = append(out, m)
		for _, below := range belows(sf.Type, f) {
			below.Name = f.name + "." + below.Name
			out = append(out, below)
		}
	}
	return out
}

// belows lists the members of a member.
func belows(t reflect.Type, f field) []shownMember {
	if f.element == nil {
		return nil
	}
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return members(t)
}

func limits(sf reflect.StructField, f field) string {
	var parts []string
	if f.min != nil {
		parts = append(parts, sf.Tag.Get("minimum")+" to "+sf.Tag.Get("maximum")+".")
	}
	if f.minItems != nil {
		parts = append(parts, "At least "+sf.Tag.Get("minItems")+".")
	}
	if f.maxItems != nil {
		parts = append(parts, "At most "+sf.Tag.Get("maxItems")+".")
	}
	if f.enum != nil {
		parts = append(parts, "One of "+strings.Join(f.enum, ", ")+".")
	}
	if f.fallback != "" {
		parts = append(parts, "Default "+f.fallback+".")
	}
	return strings.Join(parts, " ")
}

var typeNames = map[reflect.Type]string{
	reflect.TypeFor[api.Name]():         "name",
	reflect.TypeFor[api.Digest]():       "64 hex",
	reflect.TypeFor[api.Token]():        "32 hex",
	reflect.TypeFor[api.BudgetName]():   "budget",
	reflect.TypeFor[api.BudgetPrefix](): "prefix of budgets",
	reflect.TypeFor[api.Seconds]():      "seconds",
	reflect.TypeFor[api.Epoch]():        "integer",
	reflect.TypeFor[api.Time]():         "time",
	reflect.TypeFor[api.Code]():         "code",
	reflect.TypeFor[api.Limit]():        `integer or "unlimited"`,
	reflect.TypeFor[api.Headers]():      "object of strings or arrays of them",
	reflect.TypeFor[api.Entry]():        "{budget, amount}",
	reflect.TypeFor[[]byte]():           "base64",
}

// typeName says in a reader's words what a Go type is on the wire.
func typeName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		return typeName(t.Elem())
	}
	if name, ok := typeNames[t]; ok {
		return name
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "integer"
	case reflect.String:
		return "string"
	case reflect.Struct:
		return "object"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "JSON"
		}
		return "list of " + typeName(t.Elem())
	default:
		return t.Kind().String()
	}
}

func showCode(row api.CodeInfo) shownCode {
	texts := make([]string, len(row.Statuses))
	for i, status := range row.Statuses {
		texts[i] = strconv.Itoa(status)
	}
	out := shownCode{
		Style: template.CSS(styleCSS), //nolint:gosec // a constant of this program
		Code:  row.Code, Status: strings.Join(texts, " or "), Title: row.Title, Meaning: row.Meaning, Do: row.Do,
		Members: strings.Join(row.Members, ", "),
	}
	switch row.Retry {
	case api.RetryAlways:
		out.Again = "yes, after a while"
	case api.RetryDepends:
		out.Again = row.When
	case api.RetryNever:
		out.Again = "no"
	}
	return out
}

func (s *Server) docsHandler(x *exchange) error {
	page, err := s.docs()
	if err != nil {
		return err
	}
	x.sendPage(page)
	return nil
}

func (s *Server) openapiHandler(x *exchange) error {
	document, err := s.openapi()
	if err != nil {
		return err
	}
	x.send(http.StatusOK, mediaJSON, document)
	return nil
}

// problemHandler shows a row of the table of codes.
func (s *Server) problemHandler(x *exchange) error {
	row, ok := api.Code(x.r.PathValue("code")).Info()
	if !ok {
		return api.NewProblem(api.NotFound, "no such code")
	}
	var page bytes.Buffer
	if err := problemTemplate.Execute(&page, showCode(row)); err != nil {
		return err
	}
	x.sendPage(page.Bytes())
	return nil
}

// sendPage answers with a page of the product's own.
func (x *exchange) sendPage(page []byte) {
	x.Header().Set("Content-Security-Policy", pagePolicy)
	x.Header().Set("Referrer-Policy", "no-referrer")
	x.send(http.StatusOK, mediaHTML, page)
}
