package cli_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	bigint "math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// authority issues certificates.
type authority struct {
	t           *testing.T
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	path        string // of its certificate in PEM
	serial      int64
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{t: t, path: filepath.Join(dir, name+".pem")}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: bigint.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.path, "CERTIFICATE", der)
	return a
}

// issue makes a certificate for a subject, valid for 127.0.0.1 and for clients.
func (a *authority) issue(subject pkix.Name, ends time.Duration) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.serial++
	template := &x509.Certificate{
		SerialNumber: bigint.NewInt(a.serial + 1), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(ends),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// write writes certificate and key into files.
func write(t *testing.T, dir string, c tls.Certificate) (certificate, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, certificate, "CERTIFICATE", c.Certificate[0])
	writePEM(t, key, "PRIVATE KEY", der)
	return certificate, key
}

// configured starts a proxy with options of its own and more arguments.
func configured(t *testing.T, upstream, options string, more ...string) *proxied {
	t.Helper()
	p := prepared(t, upstream, options, more...)
	p.start()
	t.Cleanup(p.kill)
	return p
}

func prepared(t *testing.T, upstream, options string, more ...string) *proxied {
	t.Helper()
	p := &proxied{t: t, dir: t.TempDir(), upstream: upstream, listen: "127.0.0.1:0", more: more}
	if err := os.WriteFile(filepath.Join(p.dir, "guard.yaml"), []byte(options), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := p.command("init", "--data", filepath.Join(p.dir, "data")).CombinedOutput(); err != nil {
		t.Fatalf("init: %v: %s", err, out)
	}
	return p
}

// postBy posts by a client of its own.
func (p *proxied) postBy(transport *http.Transport, address, key string, headers ...string) (int, http.Header, error) {
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, address+"/pay", strings.NewReader("x"))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Idempotency-Key", key)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, answer.Header, err
}

func TestProxyKnowsOwnersByTheirCertificates(t *testing.T) {
	t.Parallel()
	up, dir := newPayments(t), t.TempDir()
	trusted, stranger := newAuthority(t, dir, "trusted"), newAuthority(t, dir, "stranger")
	certificate, key := write(t, dir, trusted.issue(pkix.Name{CommonName: "proxy"}, time.Hour))
	p := configured(t, up.URL, "owner: {certificate: true}\n", "--tls-certificate", certificate, "--tls-key", key, "--tls-client-ca", trusted.path)
	if !strings.HasPrefix(p.listen, "https://") {
		t.Fatalf("it listens at %s", p.listen)
	}
	client := func(certificates ...tls.Certificate) *http.Transport {
		roots := x509.NewCertPool()
		roots.AddCert(trusted.certificate)
		tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates, MinVersion: tls.VersionTLS12}}
		t.Cleanup(tr.CloseIdleConnections)
		return tr
	}
	ann, again, bob := trusted.issue(pkix.Name{CommonName: "ann"}, time.Hour), trusted.issue(pkix.Name{CommonName: "ann"}, time.Hour), trusted.issue(pkix.Name{CommonName: "bob"}, time.Hour)
	for _, c := range []struct {
		name    string
		shown   tls.Certificate
		outcome string
	}{
		{"ann", ann, "execute"}, {"ann with a renewed certificate", again, "replay"}, {"bob", bob, "execute"}, {"ann again", ann, "replay"},
	} {
		status, header, err := p.postBy(client(c.shown), p.listen, "k1")
		if err != nil || status != http.StatusCreated || header.Get("Counterfoil-Outcome") != c.outcome {
			t.Errorf("%s: %d %s, %v; want %s", c.name, status, header.Get("Counterfoil-Outcome"), err, c.outcome)
		}
	}
	for name, certificates := range map[string][]tls.Certificate{
		"no certificate":        nil,
		"one of another issuer": {stranger.issue(pkix.Name{CommonName: "ann"}, time.Hour)},
		"one that has expired":  {trusted.issue(pkix.Name{CommonName: "ann"}, -time.Minute)},
	} {
		if status, _, err := p.postBy(client(certificates...), p.listen, "k2"); err == nil {
			t.Errorf("%s: answered %d", name, status)
		}
	}
	if status, _, err := p.postBy(client(trusted.issue(pkix.Name{}, time.Hour)), p.listen, "k2"); err != nil || status != http.StatusUnauthorized {
		t.Errorf("a certificate of nobody: %d, %v", status, err)
	}
	if n, m := up.count("k1"), up.count("k2"); n != 2 || m != 0 {
		t.Errorf("the upstream was called %d and %d times", n, m)
	}
}

func TestProxyOffersNoHTTP2(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	issuer := newAuthority(t, dir, "issuer")
	certificate, key := write(t, dir, issuer.issue(pkix.Name{CommonName: "proxy"}, time.Hour))
	p := configured(t, newPayments(t).URL, "owner: {header: X-Api-Key}\n", "--tls-certificate", certificate, "--tls-key", key)
	roots := x509.NewCertPool()
	roots.AddCert(issuer.certificate)
	conn, err := tls.Dial("tcp", strings.TrimPrefix(p.listen, "https://"), &tls.Config{RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("it speaks %q", got)
	}
}

func TestProxyKnowsOwnersByTheirTokens(t *testing.T) {
	t.Parallel()
	up := newPayments(t)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := prepared(t, up.URL, "owner: {jwt: {keys: jwks.json, issuer: https://id.example, audience: payments, skew: 5s}}\n")
	b64 := base64.RawURLEncoding.EncodeToString
	set := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":%q}]}`, b64(public))
	if err := os.WriteFile(filepath.Join(p.dir, "jwks.json"), []byte(set), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(p.kill)
	bearer := func(sub string, ends time.Duration) string {
		claims := fmt.Sprintf(`{"iss":"https://id.example","aud":"payments","sub":%q,"exp":%d}`, sub, time.Now().Add(ends).Unix())
		signed := b64([]byte(`{"alg":"EdDSA","typ":"JWT"}`)) + "." + b64([]byte(claims))
		return "Bearer " + signed + "." + b64(ed25519.Sign(private, []byte(signed)))
	}
	for _, c := range []struct {
		token   string
		status  int
		outcome string
	}{
		{bearer("ann", time.Minute), 201, "execute"}, {bearer("ann", time.Hour), 201, "replay"}, {bearer("bob", time.Minute), 201, "execute"},
		{bearer("ann", -time.Minute), 401, "unauthenticated"}, {bearer("anonymous", time.Minute), 401, "unauthenticated"},
		{bearer("ann", time.Minute) + "A", 401, "unauthenticated"}, {"Bearer x.y.z", 401, "unauthenticated"},
	} {
		status, header, err := p.postBy(&http.Transport{DisableKeepAlives: true}, "http://"+p.listen, "k1", "Authorization", c.token)
		if err != nil || status != c.status || header.Get("Counterfoil-Outcome") != c.outcome {
			t.Errorf("%d %s, %v; want %d %s", status, header.Get("Counterfoil-Outcome"), err, c.status, c.outcome)
		}
	}
	if n := up.count("k1"); n != 2 {
		t.Errorf("the upstream was called %d times", n)
	}
}

func TestOptionsOfProxyThatCannotWorkAreToldBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options string
		more    []string
		want    string
	}{
		"certificates without TLS":    {"owner: {certificate: true}\n", nil, "--tls-client-ca"},
		"issuers without TLS":         {"owner: {bearer: true}\n", []string{"--tls-client-ca", "x.pem"}, "--tls-certificate"},
		"a certificate without a key": {"owner: {bearer: true}\n", []string{"--tls-certificate", "x.pem"}, "--tls-key"},
		"no file of keys":             {"owner: {jwt: {keys: none.json, issuer: i, audience: a}}\n", nil, "none.json"},
		"no owner":                    {"default: {wait: 1s}\n", nil, "owner"},
		"an option that nobody knows": {"owner: {bearer: true}\nretries: 3\n", nil, "retries"},
	} {
		p := prepared(t, "http://127.0.0.1:9", c.options)
		args := append([]string{"proxy", "--data", filepath.Join(p.dir, "data"), "--upstream", p.upstream, "--config", filepath.Join(p.dir, "guard.yaml"), "--listen", "127.0.0.1:0"}, c.more...)
		cmd := p.command(args...)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: exit code %d: %s", name, cmd.ProcessState.ExitCode(), out)
		}
	}
}

// TestProxyFinishesWhatIsInProgressBeforeItStops tells a proxy to stop while it calls the upstream: the client gets its
// answer, and the receipt is kept.
func TestProxyFinishesWhatIsInProgressBeforeItStops(t *testing.T) {
	t.Parallel()
	up := newPayments(t)
	p := startProxy(t, up.URL)
	type result struct {
		status  int
		outcome string
		err     error
	}
	answered := make(chan result, 1)
	go func() {
		status, header, _, err := p.post(t.Context(), "/slow", "k1", strings.NewReader("x"))
		answered <- result{status, header.Get("Counterfoil-Outcome"), err}
	}()
	<-up.begun
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for { // until it takes no more connections
		conn, err := net.Dial("tcp", p.listen)
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	up.gone <- struct{}{}
	if r := <-answered; r.err != nil || r.status != http.StatusCreated || r.outcome != "execute" {
		t.Errorf("the request in progress got %+v", r)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the proxy ended with %v", err)
	}
	p.start()
	p.wants("/slow", "k1", http.StatusCreated, "replay")
	if n := up.count("k1"); n != 1 {
		t.Errorf("the upstream was called %d times", n)
	}
}

// TestProxiesShareTheStateOfAServer lets two proxies work on one server: a key is used once by both together, and what
// one of them leaves open when it is killed the other one knows.
func TestProxiesShareTheStateOfAServer(t *testing.T) {
	t.Parallel()
	up, server := newPayments(t), newStateServer(t)
	one, two := startProxyOn(t, up.URL, server), startProxyOn(t, up.URL, server)
	one.wants("/pay", "k1", http.StatusCreated, "execute")
	two.wants("/pay", "k1", http.StatusCreated, "replay")

	const keys = 20
	done := make(chan string, 2*keys)
	for n := range keys {
		for _, p := range []*proxied{one, two} {
			go func() {
				status, header, text, err := p.post(t.Context(), "/pay", fmt.Sprintf("race-%d", n), strings.NewReader("x"))
				if err != nil || status != http.StatusCreated {
					done <- fmt.Sprintf("%d %s %v %s", status, header.Get("Counterfoil-Outcome"), err, text)
					return
				}
				done <- ""
			}()
		}
	}
	for range 2 * keys {
		if failed := <-done; failed != "" {
			t.Error(failed)
		}
	}
	for n := range keys {
		if calls := up.count(fmt.Sprintf("race-%d", n)); calls != 1 {
			t.Errorf("race-%d: the upstream was called %d times", n, calls)
		}
	}

	sent := make(chan error, 1)
	go func() {
		_, _, _, err := one.post(t.Context(), "/slow", "k2", strings.NewReader("x"))
		sent <- err
	}()
	<-up.begun
	one.kill()
	if err := <-sent; err == nil {
		t.Error("a call whose proxy was killed got an answer")
	}
	two.wants("/slow", "k2", http.StatusConflict, "outcome_unknown")
	if n := up.count("k2"); n != 1 {
		t.Errorf("k2: the upstream was called %d times", n)
	}
}

// startProxyOn starts a proxy whose state is that of a server.
func startProxyOn(t *testing.T, upstream string, server *stateServer) *proxied {
	t.Helper()
	p := &proxied{t: t, dir: t.TempDir(), upstream: upstream, listen: "127.0.0.1:0", server: server}
	if err := os.WriteFile(filepath.Join(p.dir, "guard.yaml"), []byte("owner: {header: X-Api-Key}\ndefault: {lease: 1s, wait: 5s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(p.kill)
	return p
}

// TestUpstreamThatMisbehavesIsCalledOnce lets an upstream reset the connection, hang, and stall amid its answer.
func TestUpstreamThatMisbehavesIsCalledOnce(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	end := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/reset":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
			return
		case "/stall":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(up.Close)
	t.Cleanup(func() { close(end) })
	p := configured(t, up.URL, "owner: {header: X-Api-Key}\ndefault: {lease: 1s, timeout: 200ms, wait: 5s}\n")
	for _, path := range []string{"/reset", "/hang", "/stall"} {
		status, header, text, err := p.post(t.Context(), path, path, strings.NewReader("a"))
		if path == "/reset" || path == "/hang" {
			if err != nil || status != http.StatusConflict || header.Get("Counterfoil-Outcome") != "outcome_unknown" {
				t.Errorf("%s: %d %s, %v: %s", path, status, header.Get("Counterfoil-Outcome"), err, text)
			}
		} else if err == nil && status < 400 {
			t.Errorf("%s: half an answer was given as a whole one: %d %s", path, status, text)
		}
		if got := calls.Load(); got != 1 {
			t.Fatalf("%s: %d calls", path, got)
		}
		p.wants(path, path, http.StatusUnprocessableEntity, "key_reused") // another body under its key
		status, header, _, err = p.post(t.Context(), path, path, strings.NewReader("a"))
		if err != nil || status != http.StatusConflict || header.Get("Counterfoil-Outcome") != "outcome_unknown" {
			t.Errorf("%s again: %d %s, %v", path, status, header.Get("Counterfoil-Outcome"), err)
		}
		if got := calls.Load(); got != 1 {
			t.Errorf("%s: %d calls", path, got)
		}
		calls.Store(0)
	}
}

// TestClientThatMisbehavesCallsNothing sends headers that are too large, a body that never ends, and one that is cut off.
func TestClientThatMisbehavesCallsNothing(t *testing.T) {
	t.Parallel()
	up := newPayments(t)
	p := configured(t, up.URL, "owner: {header: X-Api-Key}\nmax_body: 1000\n")
	head := "POST /pay HTTP/1.1\r\nHost: x\r\nX-Api-Key: ann\r\nIdempotency-Key: k1\r\n"
	for name, c := range map[string]struct{ send, want string }{
		"a header of 200 kB":            {head + "X-Large: " + strings.Repeat("x", 200<<10) + "\r\n\r\n", "HTTP/1.1 431 "},
		"a body that says it is large":  {head + "Content-Length: 1001\r\n\r\n" + strings.Repeat("x", 1001), "HTTP/1.1 413 "},
		"a body that does not say so":   {head + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + strings.Repeat("x", 1001) + "\r\n", "HTTP/1.1 413 "},
		"two lengths":                   {head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "HTTP/1.1 400 "},
		"length and chunks":             {head + "Content-Length: 1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 501 "},
		"an upgrade":                    {head + "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\nx", "HTTP/1.1 400 "},
		"a body that ends too early":    {head + "Content-Length: 10\r\n\r\nhalf", ""},
		"a line end inside of a header": {"POST /pay HTTP/1.1\r\nHost: x\r\nX-Api-Key: ann\r\nIdempotency-Key: k\n1\r\nContent-Length: 1\r\n\r\nx", "HTTP/1.1 400 "},
		"no protocol":                   {"hello\r\n\r\n", "HTTP/1.1 400 "},
	} {
		conn, err := net.Dial("tcp", p.listen)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.WriteString(conn, c.send)
			if c.want == "" {
				_ = conn.(*net.TCPConn).CloseWrite()
			}
		}()
		line, err := bufio.NewReader(conn).ReadString('\n')
		if c.want != "" && !strings.HasPrefix(line, c.want) || c.want == "" && err == nil && !strings.HasPrefix(line, "HTTP/1.1 400 ") {
			t.Errorf("%s: %q, %v; want %q", name, line, err, c.want)
		}
		_ = conn.Close()
	}
	if n := up.count("k1"); n != 0 {
		t.Errorf("the upstream was called %d times", n)
	}
	p.wants("/pay", "k1", http.StatusCreated, "execute")
}

// TestClientThatHangsUpStopsNeitherCallNorReceipt lets a client leave while its call is under way.
func TestClientThatHangsUpStopsNeitherCallNorReceipt(t *testing.T) {
	t.Parallel()
	up := newPayments(t)
	p := startProxy(t, up.URL)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, _, _, err := p.post(ctx, "/slow", "k1", strings.NewReader("x"))
		left <- err
	}()
	<-up.begun
	leave()
	if err := <-left; err == nil {
		t.Fatal("a client that left got an answer")
	}
	up.gone <- struct{}{}
	p.wants("/slow", "k1", http.StatusCreated, "replay")
	if n := up.count("k1"); n != 1 {
		t.Errorf("the upstream was called %d times", n)
	}
}
