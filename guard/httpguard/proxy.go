package httpguard

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/counterfoil/counterfoil/api"
)

// ProxyOptions configure [NewProxy].
type ProxyOptions struct {
	Upstream *url.URL // http or https; a path is put before that of each request. Required
	// ReleaseHeader is a header by which the upstream says that a request has had no effect and never will; it is not passed
	// on. "": the upstream cannot say so.
	ReleaseHeader string
	// Transport calls the upstream; nil: one that never sends a request twice and knows when it could not connect. Another
	// one must not send a request again by itself: that is what a guard is there to prevent.
	Transport http.RoundTripper
	Log       *slog.Logger // nil: nowhere
}

// NewProxy makes the handler that passes requests on to an upstream, to be put behind a [Guard]. A request that could not
// be sent because no connection was made is [NotPerformed]; one that broke later has an unknown outcome.
func NewProxy(o ProxyOptions) (http.Handler, error) {
	u := o.Upstream
	if u == nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("httpguard: the upstream is a URL as https://host[:port][/path], without user, query and fragment")
	}
	if o.ReleaseHeader != "" && !token(o.ReleaseHeader) {
		return nil, errors.New("httpguard: ReleaseHeader is no name of a header")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Transport == nil {
		o.Transport = newTransport()
	}
	return &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { rewrite(r, u) },
		Transport:      once{o.Transport},
		ModifyResponse: o.modify,
		ErrorHandler:   o.failed,
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		BufferPool:     new(buffers),
	}, nil
}

// buffers are used again from one answer to the next.
type buffers struct{ sync.Pool }

const bufferSize = 32 << 10

// Get gives a buffer.
func (b *buffers) Get() []byte {
	if p, ok := b.Pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return new([bufferSize]byte)[:]
}

// Put takes a buffer back.
func (b *buffers) Put(p []byte) { b.Pool.Put((*[bufferSize]byte)(p)) }

func rewrite(r *httputil.ProxyRequest, to *url.URL) {
	r.SetURL(to)
	// The raw query is part of the fingerprint, and goes on as it came.
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.SetXForwarded()
	r.Out.Header.Del(HeaderPermit)
	if _, named := r.In.Header["User-Agent"]; !named {
		r.Out.Header["User-Agent"] = []string{""} // none is made up
	}
}

// modify hears what the upstream says about its effect.
func (o *ProxyOptions) modify(answer *http.Response) error {
	if o.ReleaseHeader == "" {
		return nil
	}
	if answer.Header.Get(o.ReleaseHeader) == "true" {
		NotPerformed(answer.Request.Context())
	}
	answer.Header.Del(o.ReleaseHeader)
	return nil
}

// failed answers where the upstream did not.
func (o *ProxyOptions) failed(w http.ResponseWriter, r *http.Request, err error) {
	var connect *connectError
	if !errors.As(err, &connect) {
		OutcomeUnknown(r.Context())
		o.Log.Warn("a call of the upstream broke", "error", err)
		p := &api.Problem{Type: "about:blank", Title: http.StatusText(http.StatusBadGateway), Status: http.StatusBadGateway, Code: UpstreamBroke}
		p.Detail = "the upstream did not answer; whether the request had its effect is not known"
		refuse(w, p)
		return
	}
	NotPerformed(r.Context())
	o.Log.Warn("the upstream cannot be reached", "error", err)
	p := &api.Problem{Type: "about:blank", Title: http.StatusText(http.StatusBadGateway), Status: http.StatusBadGateway, Code: UpstreamUnreachable}
	p.Detail = "no connection to the upstream could be made; the request was not sent"
	p.Retryable, p.RetryAfter = true, time.Second
	refuse(w, p)
}

// The codes of a proxy whose upstream does not answer.
const (
	// UpstreamUnreachable: the request was not sent, and can be sent again.
	UpstreamUnreachable api.Code = "upstream_unreachable"
	// UpstreamBroke: the request is not guarded, and may have had its effect or not.
	UpstreamBroke api.Code = "upstream_broke"
)

// connectError is the error of a connection that was never made.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// newTransport makes a transport that marks failed connects. It speaks HTTP/1.1 alone: there, whether a request went out
// is plain.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	only1 := new(http.Protocols)
	only1.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, &connectError{err}
			}
			return conn, nil
		},
		Protocols:              only1,
		DisableCompression:     true, // bytes go through as they are
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        30 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// once keeps [http.Transport] from sending a request again when a connection breaks: it does so for a request with the
// header Idempotency-Key, if it has no body or one that can be rewound.
type once struct{ next http.RoundTripper }

func (t once) RoundTrip(r *http.Request) (*http.Response, error) {
	if !safe(r.Method) {
		sent := r.WithContext(r.Context())
		sent.GetBody = nil
		if sent.Body == nil || sent.Body == http.NoBody {
			sent.Body = noBytes{}
		}
		r = sent
	}
	return t.next.RoundTrip(r)
}

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions || method == http.MethodTrace
}

// noBytes is a body that has none, and that the transport does not know to be empty.
type noBytes struct{}

func (noBytes) Read([]byte) (int, error) { return 0, io.EOF }
func (noBytes) Close() error             { return nil }
