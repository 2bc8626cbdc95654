package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/upstream"
)

// clientCredentials are those towards a control plane. security is nil for plaintext.
func clientCredentials(t config.ClientTLS) (_ credentials.TransportCredentials, security *upstream.Security, _ error) {
	if !t.Enabled() {
		return insecure.NewCredentials(), nil, nil
	}
	c, err := clientTLS(t)
	if err != nil {
		return nil, nil, fmt.Errorf("tls: %w", err)
	}
	security = &upstream.Security{Certificate: t.Cert != ""}
	certs := c.Certificates
	c.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		security.Asked.Store(true)
		for i := range certs {
			if info.SupportsCertificate(&certs[i]) == nil {
				return &certs[i], nil
			}
		}
		return new(tls.Certificate), nil // which is none
	}
	strict := credentials.NewTLS(c)
	if t.ALPN == config.ALPNLenient {
		return lenient{strict, c}, security, nil
	}
	return strict, security, nil
}

// lenient are credentials as gRPC has them, except that a server that selects no application
// protocol is taken for one that speaks HTTP/2 all the same. gRPC lets nobody choose
// but through the environment of the process, and recommends what is done here: a
// handshake of one's own.
type lenient struct {
	credentials.TransportCredentials
	config *tls.Config
}

// http2Suites are the cipher suites of TLS 1.2 that HTTP/2 permits (RFC 9113 appendix A),
// as gRPC has them.
var http2Suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// ClientHandshake offers nothing but HTTP/2; a server that selects something else is
// refused by crypto/tls.
func (l lenient) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := l.config.Clone()
	c.NextProtos, c.CipherSuites = []string{"h2"}, http2Suites
	if c.ServerName == "" {
		c.ServerName = authority
		if host, _, err := net.SplitHostPort(authority); err == nil {
			c.ServerName = host
		}
	}
	conn := tls.Client(raw, c)
	if err := conn.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, credentials.TLSInfo{
		State:          conn.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// Clone is a copy that may be changed, as gRPC asks for.
func (l lenient) Clone() credentials.TransportCredentials {
	return lenient{l.TransportCredentials.Clone(), l.config.Clone()}
}

func clientTLS(t config.ClientTLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	var err error
	if t.CA != "" {
		if c.RootCAs, err = pool(t.CA); err != nil {
			return nil, err
		}
	}
	if t.Cert != "" {
		cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

func serverTLS(t config.ServerTLS) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	if t.ClientCA != "" {
		if c.ClientCAs, err = pool(t.ClientCA); err != nil {
			return nil, err
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

func pool(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", path)
	}
	return p, nil
}
