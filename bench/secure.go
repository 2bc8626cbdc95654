//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// secured is mutual TLS between clients and the relays that are measured: files for the relays, and what the
// clients speak.
type secured struct {
	dir    string
	client *tls.Config
}

// benchIdentity is the identity of all clients.
const benchIdentity = "spiffe://bench/ns/bench/sa/client"

// newSecured makes an authority, and certificates for a server on this host and for the clients.
func newSecured() (s *secured, err error) {
	s = &secured{}
	if s.dir, err = os.MkdirTemp("", "xds-bench-tls"); err != nil {
		return nil, err
	}
	ca, err := issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "bench"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	if err != nil {
		return nil, err
	}
	server, err := issue(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca)
	if err != nil {
		return nil, err
	}
	identity, err := url.Parse(benchIdentity)
	if err != nil {
		return nil, err
	}
	client, err := issue(&x509.Certificate{URIs: []*url.URL{identity}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	s.client = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{*client}}
	return s, s.write(ca, server)
}

func (s *secured) write(ca, server *tls.Certificate) error {
	key, err := x509.MarshalPKCS8PrivateKey(server.PrivateKey)
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		"ca.crt": {Type: "CERTIFICATE", Bytes: ca.Certificate[0]}, "tls.crt": {Type: "CERTIFICATE", Bytes: server.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// issue signs a certificate; without a parent by its own key.
func issue(c *x509.Certificate, parent *tls.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, err
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	signer, by := c, any(key)
	if parent != nil {
		signer, by = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, signer, &key.PublicKey, by)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// args are a relay's arguments.
func (s *secured) args() []string {
	tls := func(name, file string) string { return "downstream.tls." + name + "=" + filepath.Join(s.dir, file) }
	return []string{"--set", tls("cert", "tls.crt"), "--set", tls("key", "tls.key"), "--set", tls("client_ca", "ca.crt")}
}

func (s *secured) close() { _ = os.RemoveAll(s.dir) }
