package mcpguard

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// checkOrigin refuses a request that a web page may have made a browser send: a page of anywhere can reach what listens on
// this machine, if its name is made to point there (DNS rebinding). Programs that are no browser send no Origin.
func (p *Proxy) checkOrigin(r *http.Request) *rpcError {
	if p.loopback && !loopbackName(r.Host) {
		return refuseFrame(codeInvalidRequest, "the header Host does not name this machine")
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 || len(origins) == 1 && slices.Contains(p.guard.options.Origins, origins[0]) {
		return nil
	}
	if u, err := url.Parse(origins[0]); p.loopback && len(origins) == 1 && err == nil && loopbackName(u.Host) {
		return nil
	}
	return refuseFrame(codeInvalidRequest, "this Origin is not taken: see origins in the options")
}

// loopbackName reports whether host[:port] names this machine.
func loopbackName(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
