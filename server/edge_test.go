package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/api"
)

func readReply(t *testing.T, c net.Conn) reply {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(t, err)
	return reply{res.StatusCode, res.Header, string(text), res.Close}
}

// echo is a request with every kind of member.
type echo struct {
	ID       api.Digest       `json:"-" path:"id"`
	Page     int              `json:"-" query:"page" minimum:"1" maximum:"9" default:"1"`
	Name     api.Name         `json:"name"`
	Token    api.Token        `json:"token,omitzero"`
	TTL      api.Seconds      `json:"ttl_seconds,omitzero" minimum:"1" maximum:"3600"`
	Entries  []api.Entry      `json:"entries,omitzero" maxItems:"2"`
	Limit    api.Limit        `json:"limit,omitzero"`
	Kind     string           `json:"kind,omitzero" enum:"one,two"`
	Flag     bool             `json:"flag,omitzero"`
	Nested   *api.Expected    `json:"nested,omitempty"`
	Prefix   api.BudgetPrefix `json:"prefix,omitzero"`
	Epoch    api.Epoch        `json:"epoch,omitzero"`
	ReadFrom api.Name         `json:"-" query:"from"`
}

const (
	someID = "592f68884338e41467dc5449ceeb78f6157b67f7c22072ce57c8862658038bdf"
	marker = "s3cret-marker-that-must-not-come-back"
)

// echoing adds a route that answers what it was given, called by fn if that is not nil.
func echoing(fn func(context.Context, *echo) error) func(*Server) {
	return func(s *Server) {
		r := handle(Route{Method: http.MethodPost, Path: "/v1/echo/{id}"}, func(ctx context.Context, _ *access.Principal, req *echo) (int, *echo, error) {
			if fn != nil {
				if err := fn(ctx, req); err != nil {
					return 0, nil, err
				}
			}
			return http.StatusOK, req, nil
		})
		r.Roles = []access.Role{access.Operate}
		s.routes = append(s.routes, r)
		s.mux = s.multiplexer()
	}
}

func TestEachKindOfBadBodyIsRefusedAndNeverEchoed(t *testing.T) { //nolint:tparallel // what comes after the cases needs their end
	t.Parallel()
	r := serve(t, Limits{}, echoing(func(context.Context, *echo) error {
		t.Error("a bad request reached its capability")
		return nil
	}))
	for name, c := range map[string]struct {
		body    string
		code    api.Code
		pointer string
	}{
		"no JSON":                    {marker, api.Malformed, ""},
		"empty":                      {" ", api.Malformed, ""},
		"cut off":                    {`{"name":"` + marker, api.Malformed, "/name"},
		"trailing data":              {`{"name":"x"} "` + marker + `"`, api.Malformed, ""},
		"two documents":              {`{"name":"x"}{"name":"x"}`, api.Malformed, ""},
		"an array":                   {`["` + marker + `"]`, api.Malformed, ""},
		"null":                       {`null`, api.Malformed, ""},
		"null member":                {`{"name":null}`, api.Malformed, "/name"},
		"null optional member":       {`{"name":"x","token":null}`, api.Malformed, "/token"},
		"null nested":                {`{"name":"x","nested":null}`, api.Malformed, "/nested"},
		"duplicate member":           {`{"name":"x","name":"` + marker + `"}`, api.Malformed, "/name"},
		"duplicate by escape":        {`{"name":"x","n\u0061me":"` + marker + `"}`, api.Malformed, "/name"},
		"duplicate deep inside":      {`{"name":"x","nested":{"subject":"a","arguments":{"a":1,"a":2}}}`, api.Malformed, "/nested/arguments/a"},
		"unknown member":             {`{"name":"x","extra":"` + marker + `"}`, api.Malformed, "/extra"},
		"member in other case":       {`{"Name":"` + marker + `"}`, api.Malformed, "/Name"},
		"member that is a value":     {`{"name":"x","` + marker + `":1}`, api.Malformed, "/…"},
		"missing member":             {`{}`, api.Malformed, "/name"},
		"missing nested member":      {`{"name":"x","nested":{"subject":"a"}}`, api.Malformed, "/nested/capability"},
		"missing amount":             {`{"name":"x","entries":[{"budget":"b"}]}`, api.Malformed, "/entries/0/amount"},
		"missing budget":             {`{"name":"x","entries":[{"amount":1}]}`, api.Malformed, "/entries/0/budget"},
		"a number for a string":      {`{"name":5}`, api.Malformed, "/name"},
		"a string for an integer":    {`{"name":"x","ttl_seconds":"` + marker + `"}`, api.Malformed, "/ttl_seconds"},
		"a fraction for an integer":  {`{"name":"x","ttl_seconds":1.0}`, api.Malformed, "/ttl_seconds"},
		"an exponent for an integer": {`{"name":"x","ttl_seconds":1e1}`, api.Malformed, "/ttl_seconds"},
		"a fraction for an amount":   {`{"name":"x","entries":[{"budget":"b","amount":1.5}]}`, api.Malformed, "/entries/0/amount"},
		"a negative amount":          {`{"name":"x","entries":[{"budget":"b","amount":-1}]}`, api.Malformed, "/entries/0/amount"},
		"a fraction for a limit":     {`{"name":"x","limit":0.5}`, api.Malformed, "/limit"},
		"a string for a truth":       {`{"name":"x","flag":"true"}`, api.Malformed, "/flag"},
		"an object for a list":       {`{"name":"x","entries":{}}`, api.Malformed, "/entries"},
		"invalid UTF-8":              {"{\"name\":\"" + marker + "\xff\"}", api.Malformed, "/name"},
		"invalid UTF-8 in arguments": {"{\"name\":\"x\",\"nested\":{\"arguments\":\"\xc0\xaf\"}}", api.Malformed, "/nested/arguments"},
		"a lone surrogate":           {`{"name":"` + marker + `\ud800"}`, api.Malformed, "/name"},
		"a byte order mark":          {"\ufeff" + `{"name":"x"}`, api.Malformed, ""},
		"too deep":                   {`{"name":"x","nested":{"arguments":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}}`, api.Malformed, ""},

		"upper-case hex":       {`{"name":"x","token":"ABCDEF0123456789ABCDEF0123456789"}`, api.Invalid, "/token"},
		"short hex":            {`{"name":"x","token":"abcdef"}`, api.Invalid, "/token"},
		"a token of zeros":     {`{"name":"x","token":"` + strings.Repeat("0", 32) + `"}`, api.Invalid, "/token"},
		"an empty name":        {`{"name":""}`, api.Invalid, "/name"},
		"a name of 257 bytes":  {`{"name":"` + strings.Repeat("é", 128) + `x"}`, api.Invalid, "/name"},
		"a control character":  {`{"name":"a\u0000` + marker + `"}`, api.Invalid, "/name"},
		"a C1 control":         {`{"name":"a\u0085b"}`, api.Invalid, "/name"},
		"zero seconds":         {`{"name":"x","ttl_seconds":0}`, api.Invalid, "/ttl_seconds"},
		"too many seconds":     {`{"name":"x","ttl_seconds":3601}`, api.Invalid, "/ttl_seconds"},
		"an amount of 2^53":    {`{"name":"x","entries":[{"budget":"b","amount":9007199254740992}]}`, api.Invalid, "/entries/0/amount"},
		"an amount of 2^64":    {`{"name":"x","entries":[{"budget":"b","amount":18446744073709551616}]}`, api.Invalid, "/entries/0/amount"},
		"a limit by a word":    {`{"name":"x","limit":"` + marker + `"}`, api.Invalid, "/limit"},
		"a limit of 2^53":      {`{"name":"x","limit":9007199254740992}`, api.Invalid, "/limit"},
		"epoch 0":              {`{"name":"x","epoch":0}`, api.Invalid, "/epoch"},
		"a word of another":    {`{"name":"x","kind":"` + marker + `"}`, api.Invalid, "/kind"},
		"too many entries":     {`{"name":"x","entries":[{"budget":"a","amount":1},{"budget":"b","amount":1},{"budget":"c","amount":1}]}`, api.Invalid, "/entries"},
		"a budget of ..":       {`{"name":"x","entries":[{"budget":"a/../b","amount":1}]}`, api.Invalid, "/entries/0/budget"},
		"a budget with spaces": {`{"name":"x","entries":[{"budget":"a b","amount":1}]}`, api.Invalid, "/entries/0/budget"},
		"a budget too deep":    {`{"name":"x","entries":[{"budget":"1/2/3/4/5/6/7/8/9","amount":1}]}`, api.Invalid, "/entries/0/budget"},
		"an empty prefix":      {`{"name":"x","prefix":""}`, api.Invalid, "/prefix"},
		"a prefix of .":        {`{"name":"x","prefix":"."}`, api.Invalid, "/prefix"},
		"a prefix of a slash":  {`{"name":"x","prefix":"/"}`, api.Invalid, "/prefix"},
		"both":                 {`{"name":"x","nested":{"subject":"a","capability":"a","server":"a","tool":"a","request_id":"a","arguments":1,"parameter_hash":"` + someID + `"}}`, api.Malformed, "/nested/parameter_hash"},
		"neither":              {`{"name":"x","nested":{"subject":"a","capability":"a","server":"a","tool":"a","request_id":"a"}}`, api.Malformed, "/nested"},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.send(t, http.MethodPost, "/v1/echo/"+someID, c.body)
			p := wantProblem(t, a, http.StatusBadRequest, c.code)
			if p.Pointer != c.pointer && c.pointer != "" {
				t.Errorf("pointer %q, want %q: %s", p.Pointer, c.pointer, a.body)
			}
			if strings.Contains(a.body, marker) {
				t.Errorf("the problem repeats the value: %s", a.body)
			}
		})
	}
	if strings.Contains(r.logged.String(), marker) {
		t.Error("the log has a rejected value")
	}
}

func TestBadPathsAndQueriesAreRefused(t *testing.T) { //nolint:tparallel // what comes after the cases needs their end
	t.Parallel()
	r := serve(t, Limits{}, echoing(nil))
	good := "/v1/echo/" + someID
	for name, c := range map[string]struct {
		path string
		code api.Code
	}{
		"upper-case id":           {"/v1/echo/" + strings.ToUpper(someID), api.Invalid},
		"an id that is none":      {"/v1/echo/" + marker, api.Invalid},
		"unknown parameter":       {good + "?" + marker + "=1", api.Invalid},
		"parameter twice":         {good + "?page=1&page=2", api.Invalid},
		"empty parameter":         {good + "?page=", api.Invalid},
		"parameter out of range":  {good + "?page=10", api.Invalid},
		"parameter with a sign":   {good + "?page=%2B1", api.Invalid},
		"parameter with zeros":    {good + "?page=01", api.Invalid},
		"parameter that is text":  {good + "?page=" + marker, api.Invalid},
		"bad escape":              {good + "?page=%zz", api.Malformed},
		"semicolon":               {good + "?page=1;page=2", api.Malformed},
		"invalid UTF-8":           {good + "?from=%ff", api.Invalid},
		"control character":       {good + "?from=a%00b", api.Invalid},
		"empty name":              {good + "?from=", api.Invalid},
		"no parameter, but a key": {good + "?" + marker, api.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.send(t, http.MethodPost, c.path, `{"name":"x"}`)
			wantProblem(t, a, http.StatusBadRequest, c.code)
			if strings.Contains(a.body, marker) {
				t.Errorf("the problem repeats the value: %s", a.body)
			}
		})
	}
	if strings.Contains(r.logged.String(), marker) {
		t.Error("the log has a rejected value")
	}
	if a := r.send(t, http.MethodPost, good+"?page=9&from=a%2Fb", `{"name":"x"}`); a.status != http.StatusOK {
		t.Errorf("a good query: %d %s", a.status, a.body)
	}
}

func TestPathsAndMethodsWithoutRoute(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, echoing(nil))
	for _, path := range []string{"/", "/v1", "/v1/nothing", "/v1/echo", "/v1/echo/", "/v1/echo/" + someID + "/", "/healthz/", "/v1//echo", "//", "/v1/../healthz", "/v1/./echo", "/docs/x", "/problems/", "/problems/" + marker, "/v1/echo/a/b"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, "BREW"} {
			a := r.raw(t, method+" "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			if path == "/problems/"+marker && method != http.MethodGet {
				wantProblem(t, a, http.StatusMethodNotAllowed, api.MethodNotAllowed)
				continue
			}
			wantProblem(t, a, http.StatusNotFound, api.NotFound)
			if strings.Contains(a.body, marker) {
				t.Errorf("the problem repeats the path: %s", a.body)
			}
		}
	}
	for path, allow := range map[string]string{"/healthz": "GET", "/v1/echo/" + someID: "POST", "/docs": "GET", "/metrics": "GET"} {
		for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, "BREW"} {
			a := r.send(t, method, path, "")
			wantProblem(t, a, http.StatusMethodNotAllowed, api.MethodNotAllowed)
			if a.header.Get("Allow") != allow {
				t.Errorf("%s %s: Allow %q", method, path, a.header.Get("Allow"))
			}
		}
	}
	for _, target := range []string{"*", "http://x", ""} {
		a := r.raw(t, "OPTIONS "+target+" HTTP/1.1\r\nHost: x\r\n\r\n")
		if p := a.problem(t); a.status != p.Status || a.status < 400 || a.header.Get("Content-Type") != api.ProblemType {
			t.Errorf("OPTIONS %s: %d %s", target, a.status, a.body)
		}
	}
}

func TestABodyMustBeDeclaredAsJSON(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, echoing(nil))
	path := "/v1/echo/" + someID
	for _, media := range []string{"", "text/json", "application/xml", "application/json; charset=latin1", "application/json; charset=utf-8; v=1", "application/json, text/plain", "application/problem+json", "multipart/form-data", "json", "application/json;;"} {
		a := r.send(t, http.MethodPost, path, `{"name":"x"}`, "Content-Type", media)
		wantProblem(t, a, http.StatusUnsupportedMediaType, api.UnsupportedMediaType)
	}
	for _, encoding := range []string{"gzip", "br", "deflate, gzip"} {
		a := r.send(t, http.MethodPost, path, `{"name":"x"}`, "Content-Encoding", encoding)
		wantProblem(t, a, http.StatusUnsupportedMediaType, api.UnsupportedMediaType)
	}
	for _, media := range []string{"application/json", "Application/JSON", "application/json; charset=utf-8", `application/json;charset="UTF-8"`} {
		if a := r.send(t, http.MethodPost, path, `{"name":"x"}`, "Content-Type", media); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", media, a.status, a.body)
		}
	}
	twice := "POST " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + r.admin + "\r\nContent-Type: application/json\r\nContent-Type: application/json\r\nContent-Length: 12\r\nConnection: close\r\n\r\n" + `{"name":"x"}`
	wantProblem(t, r.raw(t, twice), http.StatusUnsupportedMediaType, api.UnsupportedMediaType)
	missing := "POST " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + r.admin + "\r\nConnection: close\r\n\r\n"
	wantProblem(t, r.raw(t, missing), http.StatusUnsupportedMediaType, api.UnsupportedMediaType)
}

func TestNobodyIsServedWithoutAValidToken(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, echoing(nil))
	path := "/v1/echo/" + someID
	wrong := "cf_" + strings.Repeat("A", 43)
	for _, value := range []string{"", "Bearer", "Bearer ", "Basic " + r.admin, "Bearer  " + r.admin, "Bearer " + r.admin + " ", r.admin, "Bearer " + r.admin[:20], "Bearer " + wrong, "Bearer " + r.admin + "=", "bearer\t" + r.admin} {
		a := r.send(t, http.MethodPost, path, `{"name":"x"}`, "Authorization", value)
		if strings.TrimSpace(value) == "Bearer "+r.admin {
			// net/http trims the value of a header, as RFC 9110 5.5 says.
			continue
		}
		wantProblem(t, a, http.StatusUnauthorized, api.Unauthenticated)
		if a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%q: no WWW-Authenticate", value)
		}
	}
	// The body is not looked at before: it may be as bad as it likes.
	wantProblem(t, r.send(t, http.MethodPost, path, marker, "Authorization", "", "Content-Type", "text/plain"), http.StatusUnauthorized, api.Unauthenticated)
	if s := r.logged.String(); strings.Contains(s, r.admin) || strings.Contains(s, wrong) || strings.Contains(s, r.admin[:20]) {
		t.Error("the log has a token")
	}
}

func TestATokenNeedsTheRouteRole(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, echoing(nil))
	operator, err := access.Operator("default", "default")
	must(t, err)
	for role, status := range map[access.Role]int{access.Operate: http.StatusOK, access.Admin: http.StatusOK, access.Read: http.StatusForbidden, access.Observe: http.StatusForbidden, access.Spend: http.StatusForbidden} {
		_, token, err := r.access.Create(t.Context(), operator, access.Grant{Name: "t-" + string(role), Owner: "o", Roles: []access.Role{role}})
		must(t, err)
		a := r.send(t, http.MethodPost, "/v1/echo/"+someID, `{"name":"x"}`, "Authorization", "Bearer "+token.Reveal())
		if a.status != status {
			t.Errorf("%s: %d %s", role, a.status, a.body)
		}
		if status == http.StatusForbidden {
			wantProblem(t, a, status, api.Forbidden)
		}
		if role == access.Operate {
			for _, header := range []string{"Counterfoil-Owner", "Counterfoil-Scope"} {
				a := r.send(t, http.MethodPost, "/v1/echo/"+someID, `{"name":"x"}`, "Authorization", "Bearer "+token.Reveal(), header, "other")
				wantProblem(t, a, http.StatusForbidden, api.Forbidden)
			}
		}
	}
}

func TestALargeBodyIsRefused(t *testing.T) { //nolint:tparallel // what comes after the cases needs their end
	t.Parallel()
	r := serve(t, Limits{}, echoing(nil))
	large := `{"name":"` + strings.Repeat("x", 10<<20) + `"}`
	for name, body := range map[string]io.Reader{"declared": strings.NewReader(large), "chunked": io.MultiReader(strings.NewReader(large))} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/echo/"+someID, body)
			must(t, err)
			req.Header.Set("Authorization", "Bearer "+r.admin)
			req.Header.Set("Content-Type", "application/json")
			a := do(t, req)
			wantProblem(t, a, http.StatusRequestEntityTooLarge, api.TooLarge)
			if !a.last {
				t.Error("the connection of a body that was not read goes on")
			}
		})
	}
	// One byte below the limit is taken for what it is, one above not.
	for size, code := range map[int]api.Code{smallBody: api.Invalid, smallBody + 1: api.TooLarge} {
		body := `{"name":"` + strings.Repeat("x", size-len(`{"name":""}`)) + `"}`
		if p := r.send(t, http.MethodPost, "/v1/echo/"+someID, body).problem(t); p.Code != code {
			t.Errorf("%d bytes: %s, want %s", size, p.Code, code)
		}
	}
}

// A client that writes its whole request before it reads, as most do, must find the answer and not a reset connection.
func TestARefusalReachesAClientThatIsStillSending(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, echoing(nil))
	for name, head := range map[string]string{ //nolint:gosec // no secret
		"too large": "Authorization: Bearer " + r.admin + "\r\nContent-Type: application/json\r\n",
		"no token":  "Content-Type: application/json\r\n",
		"no type":   "Authorization: Bearer " + r.admin + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "POST /v1/echo/" + someID + " HTTP/1.1\r\nHost: x\r\n" + head + "Content-Length: 20000000\r\n\r\n" + strings.Repeat("x", 20000000)
			if p := r.raw(t, text).problem(t); p.Status < 400 {
				t.Fatalf("%+v", p)
			}
		})
	}
}

func TestAClientThatWaitsToBeAskedIsRefusedUnasked(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, echoing(nil))
	for head, code := range map[string]api.Code{"": api.Unauthenticated, "Authorization: Bearer " + r.admin + "\r\nContent-Type: application/json\r\n": api.TooLarge} {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
		_, err = io.WriteString(c, "POST /v1/echo/"+someID+" HTTP/1.1\r\nHost: x\r\n"+head+"Content-Length: 10000000\r\nExpect: 100-continue\r\n\r\n")
		must(t, err)
		text, err := io.ReadAll(c)
		must(t, err)
		if strings.Contains(string(text), "100 Continue") || !strings.Contains(string(text), string(code)) {
			t.Errorf("%s", text)
		}
		must(t, c.Close())
	}
}

func TestASlowBodyTimesOut(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{BodyTime: 100 * time.Millisecond}, echoing(nil))
	text := "POST /v1/echo/" + someID + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + r.admin + "\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
	wantProblem(t, r.raw(t, text), http.StatusRequestTimeout, api.RequestTimeout)
	chunked := strings.Replace(text, "Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", 1)
	wantProblem(t, r.raw(t, chunked), http.StatusRequestTimeout, api.RequestTimeout)
	if n := r.server.inProgress.Load(); n != 0 {
		t.Errorf("%d requests are still in progress", n)
	}
	// A body in time is not harmed by an earlier deadline of its connection.
	for range 3 {
		if a := r.send(t, http.MethodPost, "/v1/echo/"+someID, `{"name":"x"}`); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
}

func TestSlowHeadersCloseTheConnection(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{HeaderTime: 100 * time.Millisecond}, nil)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr)
	must(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n")
	must(t, err)
	must(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	if n, err := io.Copy(io.Discard, c); err != nil {
		t.Fatalf("still open after %d bytes: %v", n, err)
	}
}

func TestWhatIsNoRequestIsAnsweredAsAProblem(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, echoing(nil))
	long := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		text   string
		status int
		code   api.Code
	}{
		"huge header":      {"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + long + "\r\n\r\n", 431, api.TooLarge},
		"huge token":       {"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + long + "\r\n\r\n", 431, api.TooLarge},
		"many headers":     {"GET /healthz HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-A: y\r\n", 10_000) + "\r\n", 431, api.TooLarge},
		"huge path":        {"GET /" + long + " HTTP/1.1\r\nHost: x\r\n\r\n", 431, api.TooLarge},
		"no HTTP":          {"EHLO " + marker + "\r\n\r\n", 400, api.Malformed},
		"no host":          {"GET /healthz HTTP/1.1\r\n\r\n", 400, api.Malformed},
		"bad header":       {"GET /healthz HTTP/1.1\r\nHost: x\r\n" + marker + "\r\n\r\n", 400, api.Malformed},
		"bad version":      {"GET /healthz HTTP/7.1\r\nHost: x\r\n\r\n", 400, api.Malformed},
		"both lengths":     {"POST /v1/echo/" + someID + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400, api.Malformed},
		"unknown transfer": {"POST /v1/echo/" + someID + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + marker + "\r\n\r\n", 400, api.Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := r.raw(t, c.text)
			p := a.problem(t)
			if a.status != c.status || p.Status != c.status || p.Code != c.code || a.header.Get("Content-Type") != api.ProblemType ||
				a.header.Get("Counterfoil-Outcome") != string(c.code) || a.header.Get("Cache-Control") != "no-store" {
				t.Fatalf("%d %v %s", a.status, a.header, a.body)
			}
			if strings.Contains(a.body, marker) {
				t.Errorf("the problem repeats the request: %s", a.body)
			}
		})
	}
	t.Cleanup(func() {
		if strings.Contains(r.logged.String(), marker) {
			t.Error("the log has a rejected value")
		}
	})
}

func TestTooManyRequestsAtOnceAreRefused(t *testing.T) {
	t.Parallel()
	const connections, places = 2000, 1024
	entered, goOn := make(chan struct{}, connections), make(chan struct{})
	r := serve(t, Limits{}, echoing(func(context.Context, *echo) error {
		entered <- struct{}{}
		<-goOn
		return nil
	}))
	text := "POST /v1/echo/" + someID + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + r.admin + "\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n" + `{"name":"x"}`
	open := make([]net.Conn, connections)
	refused := make(chan error, connections)
	done := make(chan int, connections)
	for i := range open {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		open[i] = c
		must(t, c.SetDeadline(time.Now().Add(60*time.Second)))
		go func() {
			_, err := io.WriteString(c, text)
			if err != nil {
				refused <- err
				return
			}
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				refused <- err
				return
			}
			_ = res.Body.Close()
			if res.StatusCode == http.StatusServiceUnavailable {
				if res.Header.Get("Counterfoil-Outcome") != "overloaded" || res.Header.Get("Retry-After") != "1" {
					refused <- fmt.Errorf("headers %v", res.Header)
					return
				}
				refused <- nil
				return
			}
			done <- res.StatusCode
		}()
	}
	for range places {
		<-entered
	}
	for range connections - places {
		must(t, <-refused)
	}
	// The server still says how it is.
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if a := r.send(t, http.MethodGet, path, ""); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	close(goOn)
	for range places {
		if status := <-done; status != http.StatusOK {
			t.Fatalf("a request that was taken in got %d", status)
		}
	}
	if a := r.send(t, http.MethodPost, "/v1/echo/"+someID, `{"name":"x"}`); a.status != http.StatusOK {
		t.Errorf("after the crowd: %d %s", a.status, a.body)
	}
}

func TestMoreConnectionsThanAllowedWait(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{Connections: 2}, nil)
	dial := func() net.Conn {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
		_, err = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		must(t, err)
		return c
	}
	first, second := dial(), dial()
	readReply(t, first)
	readReply(t, second)
	third := dial()
	defer third.Close()
	must(t, third.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	if n, err := third.Read(make([]byte, 1)); err == nil {
		t.Fatalf("a third connection is served: %d bytes", n)
	}
	must(t, first.Close())
	must(t, third.SetReadDeadline(time.Now().Add(30*time.Second)))
	if a := readReply(t, third); a.status != http.StatusOK {
		t.Fatalf("%d", a.status)
	}
	must(t, second.Close())
}

func TestLargeBodiesTogetherAreBounded(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{BodyBytes: 100 << 10}, func(s *Server) {
		echoing(nil)(s)
		s.routes[len(s.routes)-1].MaxBody = 90 << 10
	})
	// One client has declared 80 KiB and holds them; a second large body does not fit beside it, a small one does.
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr)
	must(t, err)
	_, err = io.WriteString(c, "POST /v1/echo/"+someID+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+r.admin+"\r\nContent-Type: application/json\r\nContent-Length: 81920\r\nExpect: 100-continue\r\n\r\n")
	must(t, err)
	// The server asks for the body once it has taken the place for it.
	must(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
	large := `{"name":"` + strings.Repeat("x", 80<<10) + `"}`
	wantProblem(t, r.send(t, http.MethodPost, "/v1/echo/"+someID, large), http.StatusServiceUnavailable, api.Overloaded)
	if a := r.send(t, http.MethodPost, "/v1/echo/"+someID, `{"name":"x"}`); a.status != http.StatusOK {
		t.Errorf("a small body: %d %s", a.status, a.body)
	}
	must(t, c.Close())
}

func TestAPanicIsAnInternalErrorWithoutDetail(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, echoing(func(_ context.Context, e *echo) error {
		if e.Name == "index" {
			_ = []int{}[len(e.Name)]
		}
		panic(marker)
	}))
	for _, name := range []string{"index", "other"} {
		a := r.send(t, http.MethodPost, "/v1/echo/"+someID, `{"name":"`+name+`"}`)
		p := wantProblem(t, a, http.StatusInternalServerError, api.Internal)
		if p.Detail != "" || strings.Contains(a.body, "goroutine") {
			t.Errorf("%s", a.body)
		}
	}
	log := r.logged.String()
	if !strings.Contains(log, "a handler panicked") || !strings.Contains(log, "edge_test.go") || !strings.Contains(log, "index out of range") {
		t.Error("the log does not show where it panicked")
	}
	if strings.Contains(log, marker) {
		t.Error("the log has what the panic said")
	}
	if a := r.send(t, http.MethodGet, "/metrics", ""); !strings.Contains(a.body, "counterfoil_http_panics_total 2") {
		t.Error("the panics are not counted")
	}
}

func TestAnErrorThatNobodyForesawIsInternal(t *testing.T) {
	t.Parallel()
	r := serve(t, Limits{}, echoing(func(context.Context, *echo) error { return io.ErrShortBuffer }))
	p := wantProblem(t, r.send(t, http.MethodPost, "/v1/echo/"+someID, `{"name":"x"}`), http.StatusInternalServerError, api.Internal)
	if p.Detail != "" || !strings.Contains(r.logged.String(), p.Instance) || !strings.Contains(r.logged.String(), "short buffer") {
		t.Errorf("%+v", p)
	}
}

func TestDrainingFinishesWhatIsInProgress(t *testing.T) {
	t.Parallel()
	entered, goOn := make(chan struct{}), make(chan struct{})
	r := serve(t, Limits{}, echoing(func(context.Context, *echo) error {
		entered <- struct{}{}
		<-goOn
		return nil
	}))
	answer := make(chan reply, 1)
	go func() { answer <- r.send(t, http.MethodPost, "/v1/echo/"+someID, `{"name":"x"}`) }()
	<-entered
	r.server.Drain()
	wantProblem(t, r.send(t, http.MethodPost, "/v1/echo/"+someID, `{"name":"x"}`), http.StatusServiceUnavailable, api.Draining)
	ready := r.send(t, http.MethodGet, "/readyz", "")
	wantProblem(t, ready, http.StatusServiceUnavailable, api.Draining)
	if a := r.send(t, http.MethodGet, "/healthz", ""); a.status != http.StatusOK {
		t.Errorf("/healthz: %d", a.status)
	}
	r.stop()
	select {
	case err := <-r.done:
		t.Fatalf("Serve returned %v with a request in progress", err)
	default:
	}
	close(goOn)
	if a := <-answer; a.status != http.StatusOK {
		t.Fatalf("the request in progress got %d %s", a.status, a.body)
	}
	err := <-r.done
	r.done <- err
	must(t, err)
}

func TestDrainingEndsWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	entered, goOn := make(chan struct{}), make(chan struct{})
	r := serve(t, Limits{DrainTime: 50 * time.Millisecond}, echoing(func(context.Context, *echo) error {
		entered <- struct{}{}
		<-goOn
		return nil
	}))
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr)
	must(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "POST /v1/echo/"+someID+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+r.admin+"\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"+`{"name":"x"}`)
	must(t, err)
	<-entered
	r.stop()
	if err := <-r.done; err == nil || !strings.Contains(err.Error(), "in progress") {
		t.Fatalf("Serve: %v", err)
	}
	close(goOn)
	r.done <- nil
}
