package process_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/client"
)

func TestItServesTLSWithTheCertificateThatItIsGiven(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	certificate, key, roots := certify(t, filepath.Dir(m.dir))
	p := m.start(nil, "--tls-certificate", certificate, "--tls-key", key)
	if !strings.HasPrefix(p.url, "https://") {
		t.Fatalf("it serves at %s", p.url)
	}
	c, err := client.New(client.Options{
		URL: p.url, Token: m.admin(), RetryFor: -1,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := c.As("", "").Epoch(t.Context()); err != nil || e.Epoch != 1 {
		t.Fatalf("epoch: %+v, %v", e, err)
	}
	stranger, err := client.New(client.Options{URL: p.url, Token: m.admin(), RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.As("", "").Epoch(t.Context()); err == nil {
		t.Fatal("a client that does not know the issuer sent its token")
	}
	if code := p.terminate(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.errors)
	}
	bad, _ := m.launch(nil, "--tls-certificate", key, "--tls-key", certificate)
	if code := bad.wait(); code != 2 {
		t.Fatalf("with key and certificate mixed up: exit code %d\n%s", code, bad.errors)
	}
}

// certify writes a certificate for 127.0.0.1 with its key, and gives the pool that knows it.
func certify(t *testing.T, dir string) (certificate, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return certificate, key, roots
}
