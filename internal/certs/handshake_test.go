package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// Each cause of a failed handshake is told apart, at both ends as far as TLS tells it,
// with both versions of it.
func TestClassify(t *testing.T) {
	ours, theirs := certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "theirs")
	now := time.Now()
	pair := func(a *certstest.Authority, c x509.Certificate) []tls.Certificate {
		cert, key := a.Issue(t, c)
		p, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{p}
	}
	good := pair(ours, x509.Certificate{})
	old, early := x509.Certificate{NotAfter: now.Add(-time.Minute)}, x509.Certificate{NotBefore: now.Add(time.Minute)}
	for _, tt := range []struct {
		name           string
		server, client *tls.Config
		// What each end makes of it; empty: nothing went wrong there.
		atServer, atClient Reason
	}{
		{"good", &tls.Config{Certificates: good, ClientAuth: tls.RequireAndVerifyClientCert}, &tls.Config{Certificates: good}, "", ""},
		{"expired server", &tls.Config{Certificates: pair(ours, old)}, &tls.Config{}, HandshakeExpired, HandshakeExpired},
		{"early server", &tls.Config{Certificates: pair(ours, early)}, &tls.Config{}, HandshakeNotYetValid, HandshakeNotYetValid},
		{"unknown server", &tls.Config{Certificates: pair(theirs, x509.Certificate{})}, &tls.Config{}, HandshakeRefused, HandshakeUnknownCA},
		{"misnamed server", &tls.Config{Certificates: good}, &tls.Config{ServerName: "xds.example"}, HandshakeRefused, HandshakeWrongName},
		{"server with a name only", &tls.Config{Certificates: pair(ours, x509.Certificate{DNSNames: []string{"a.example"}})}, &tls.Config{}, HandshakeRefused, HandshakeWrongName},
		{"no client certificate", &tls.Config{Certificates: good, ClientAuth: tls.RequireAndVerifyClientCert}, &tls.Config{}, HandshakeNoCertificate, HandshakeNoCertificate},
		{"expired client", &tls.Config{Certificates: good, ClientAuth: tls.RequireAndVerifyClientCert}, &tls.Config{Certificates: pair(ours, old)}, HandshakeExpired, HandshakeExpired},
		{"early client", &tls.Config{Certificates: good, ClientAuth: tls.RequireAndVerifyClientCert}, &tls.Config{Certificates: pair(ours, early)}, HandshakeNotYetValid, HandshakeExpired},
		{"unknown client", &tls.Config{Certificates: good, ClientAuth: tls.RequireAndVerifyClientCert}, &tls.Config{Certificates: pair(theirs, x509.Certificate{})}, HandshakeUnknownCA, HandshakeUnknownCA},
		{"no version in common", &tls.Config{Certificates: good, MinVersion: tls.VersionTLS13}, &tls.Config{MaxVersion: tls.VersionTLS12}, HandshakeProtocol, HandshakeProtocol},
		{"no protocol in common", &tls.Config{Certificates: good, NextProtos: []string{"h2"}}, &tls.Config{NextProtos: []string{"x"}}, HandshakeProtocol, HandshakeProtocol},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(fmt.Sprintf("%s, %s", tt.name, tls.VersionName(version)), func(t *testing.T) {
				server, client := tt.server.Clone(), tt.client.Clone()
				server.ClientCAs, client.RootCAs = ours.Pool(), ours.Pool()
				if client.MaxVersion == 0 {
					client.MaxVersion = version
				}
				if client.ServerName == "" {
					client.ServerName = "127.0.0.1"
				}
				wantAtClient := tt.atClient
				if tt.name == "no client certificate" && version == tls.VersionTLS12 {
					wantAtClient = HandshakeProtocol // as the alert has it
				}
				if len(client.Certificates) > 0 { // whoever the server says that it trusts
					client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &client.Certificates[0], nil }
				}
				// Who shows a certificate that the other end refuses without a reason
				// knows by itself how old it is.
				atServer, atClient := shake(t, server, client)
				judge(t, "server", atServer, server.Certificates, tt.atServer)
				judge(t, "client", atClient, client.Certificates, wantAtClient)
			})
		}
	}
}

func judge(t *testing.T, end string, err error, shown []tls.Certificate, want Reason) {
	t.Helper()
	f, ok := Classify(err)
	if !ok {
		f.Reason = ""
	}
	if len(shown) > 0 {
		f = f.Against(shown[0].Leaf, time.Now())
	}
	if f.Reason != want {
		t.Errorf("%s: %q of %v, want %q", end, f.Reason, err, want)
	}
}

// shake makes a handshake over TCP; the client reads after it, since with TLS 1.3 that is
// where it learns what the server makes of its certificate.
func shake(t *testing.T, server, client *tls.Config) (atServer, atClient error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var serving sync.WaitGroup
	serving.Go(func() {
		raw, err := l.Accept()
		if err != nil {
			atServer = err
			return
		}
		c := tls.Server(raw, server)
		if atServer = c.Handshake(); atServer == nil {
			_, atServer = c.Write([]byte("hello"))
		}
		_ = c.CloseWrite() // the handshake may have failed
		_, _ = io.Copy(io.Discard, raw)
		raw.Close()
	})
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, client)
	if atClient = c.Handshake(); atClient == nil {
		_, atClient = c.Read(make([]byte, 5))
	}
	raw.Close()
	serving.Wait()
	return atServer, atClient
}

// Plaintext where TLS is spoken is a matter of protocol, at both ends, and who goes away
// without a word has failed at nothing.
func TestClassifyWithoutTLS(t *testing.T) {
	server, client := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- tls.Server(server, &tls.Config{}).Handshake() }()
	if _, err := client.Write([]byte("PRI * HTTP/2.0\r\n")); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, client) }() // what the server says of it
	if f, ok := Classify(<-done); !ok || f.Reason != HandshakeProtocol {
		t.Errorf("plaintext: %+v", f)
	}
	server.Close()
	client.Close()
	for _, err := range []error{nil, io.EOF, context.Canceled, net.ErrClosed, fmt.Errorf("read: %w", io.EOF)} {
		if f, ok := Classify(err); ok {
			t.Errorf("%v: %+v, want no failure", err, f)
		}
	}
	if f, ok := Classify(&net.OpError{Op: "local error", Err: errors.New("tls: bad record MAC")}); !ok || f != (Failure{HandshakeRefused, true}) {
		t.Errorf("what OpenSSL sends that refuses a certificate: %+v", f)
	}
	if f, ok := Classify(errors.New("something")); !ok || f.Reason != HandshakeOther {
		t.Errorf("something: %+v", f)
	}
}
