package client

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/access"
	"github.com/counterfoil/counterfoil/internal/clock"
	"github.com/counterfoil/counterfoil/internal/entropy"
)

// Limits of every client.
const (
	// MaxAnswer is how many bytes of an answer are read: more than the largest receipt takes.
	MaxAnswer = 32 << 20
	// maxSends bounds how often one request is sent.
	maxSends = 8
	// maxPause bounds a wait that the server did not ask for.
	maxPause = 2 * time.Second
)

// Options configure a [Client].
type Options struct {
	// URL of the server: scheme and host, and a path if the server is behind one. It must hold no password.
	URL string
	// Token of the credential: cf_ and 43 characters. It is sent in a header and shown nowhere. Required, unless
	// Transport speaks for somebody by itself.
	Token string
	// Transport sends the requests. Default: connections of the client's own, of which up to 64 are kept open.
	Transport http.RoundTripper
	// Timeout is how long one answer is waited for. Default: 45 s, longer than the server takes for itself.
	Timeout time.Duration
	// RetryFor is how long a request may be sent again after the first send. Default: 15 s; negative: it is sent once.
	RetryFor time.Duration
	// UserAgent tells the server's operator who asks. Default: counterfoil-go.
	UserAgent string
}

// Client talks to one server. It is safe for concurrent use.
type Client struct {
	base      *url.URL
	token     access.Token
	bearer    bool
	http      *http.Client
	timeout   time.Duration
	retryFor  time.Duration
	userAgent string
	clock     clock.Clock
	entropy   entropy.Source
}

// New makes a client. It opens no connection. It fails with [counterfoil.ErrInvalid] if an option cannot be right.
func New(o Options) (*Client, error) {
	base, err := parseBase(o.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: the server's URL: %w", counterfoil.ErrInvalid, err)
	}
	c := &Client{
		base: base, timeout: cmp.Or(o.Timeout, 45*time.Second), retryFor: cmp.Or(o.RetryFor, 15*time.Second),
		userAgent: cmp.Or(o.UserAgent, "counterfoil-go"), clock: clock.System{}, entropy: entropy.System,
	}
	if o.Token != "" {
		if c.token, err = access.ParseToken(o.Token); err != nil {
			return nil, fmt.Errorf("%w: the token is not of the form cf_ and 43 characters", counterfoil.ErrInvalid)
		}
		c.bearer = true
	}
	if !c.bearer && o.Transport == nil {
		return nil, fmt.Errorf("%w: a token is required", counterfoil.ErrInvalid)
	}
	if o.Transport == nil {
		o.Transport = transport()
	}
	c.http = &http.Client{
		Transport: o.Transport,
		// A redirect would send token and body to another place.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func parseBase(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("want http:// or https://")
	case u.Host == "":
		return nil, errors.New("it names no host")
	case u.User != nil:
		return nil, errors.New("it holds a user or password; give the token apart")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("it ends with a query or a fragment")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}

// transport keeps connections open, and compresses nothing.
func transport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// As gives what acts in a scope as an owner. Empty ones are the token's own; any other needs a token with the role admin,
// for another scope one of scope *.
func (c *Client) As(scope, owner string) *Caller {
	return &Caller{client: c, scope: scope, owner: owner}
}

// Caller acts in one scope as one owner. It is safe for concurrent use.
type Caller struct {
	client       *Client
	scope, owner string // "" for the token's own
}

var _ counterfoil.Caller = (*Caller)(nil)
