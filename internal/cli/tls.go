package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
)

// listenForGuard opens an address as listenAt does, for so many connections at once as the options say.
func (c *call) listenForGuard(ctx context.Context, address string) (l net.Listener, at string, err error) {
	return c.listenAt(ctx, address, c.config.MaxConnections)
}

// listenAt opens an address, with TLS if a certificate is given, and gives its URL. It offers HTTP/1.1 alone. With most it
// bounds the connections; 0 leaves that to who serves them.
func (c *call) listenAt(ctx context.Context, address string, most int) (l net.Listener, at string, err error) {
	secure, err := c.tlsOptions()
	if err != nil {
		return nil, "", err
	}
	l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, "", exit(Unavailable, "cannot listen: %w; give another address with --listen", err)
	}
	if tcp, ok := l.(*net.TCPListener); ok && most > 0 {
		l = boundConnections(tcp, most)
	}
	if secure == nil {
		return l, "http://" + l.Addr().String(), nil
	}
	return tls.NewListener(l, secure), "https://" + l.Addr().String(), nil
}

// tlsOptions reads certificate, key and the issuers of clients' certificates; nil without a certificate.
func (c *call) tlsOptions() (*tls.Config, error) {
	if c.config.TLSCertificate == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.config.TLSCertificate, c.config.TLSKey)
	if err != nil {
		return nil, badValue("--tls-certificate and --tls-key: %w", err)
	}
	secure := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if c.config.TLSClientCA == "" {
		return secure, nil
	}
	issuers, err := readFile(c.config.TLSClientCA)
	if err != nil {
		return nil, err
	}
	secure.ClientAuth, secure.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !secure.ClientCAs.AppendCertsFromPEM(issuers) {
		return nil, badValue("--tls-client-ca: %s has no certificate in PEM", c.config.TLSClientCA)
	}
	return secure, nil
}
