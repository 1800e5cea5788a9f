package server

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/counterfoil/counterfoil/access"
)

// Local answers requests of this process, without network and token, as from who. It is for whoever has the store itself in
// hand. The context of a request carries who; nobody outside of the process can set that.
func (s *Server) Local(who access.Principal) http.RoundTripper {
	return &local{server: s, who: who}
}

type local struct {
	server *Server
	who    access.Principal
}

type localKey struct{}

// holder is who a request is from: the one that [Server.Local] was made for, or who holds the request's token.
func (s *Server) holder(ctx context.Context, r *http.Request) (access.Principal, error) {
	if who, ok := ctx.Value(localKey{}).(access.Principal); ok {
		return who, nil
	}
	token, err := access.ParseBearer(r.Header["Authorization"])
	if err != nil {
		return access.Principal{}, err
	}
	return s.access.Authenticate(ctx, token)
}

// RoundTrip answers a request as if it had come in.
func (l *local) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := context.WithValue(r.Context(), localKey{}, l.who)
	in := r.Clone(ctx)
	in.RequestURI = in.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close()
	w := &kept{header: http.Header{}}
	l.server.ServeHTTP(w, in)
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// kept is an answer that stays in memory.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *kept) Header() http.Header { return w.header }

func (w *kept) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *kept) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}
