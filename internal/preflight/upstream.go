package preflight

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/hint"
	"github.com/xds-relay/xds-relay/internal/proxy"
	"github.com/xds-relay/xds-relay/upstream"
)

// target is a control plane, step by step nearer.
type target struct {
	section          string // of the configuration
	source           config.Source
	entry            config.Fallback
	network, address string
	host             string
	hints            hint.ControlPlane
	proxy            *proxy.Proxy // that it is reached through; nil: none
}

// controlPlane checks the way to one, and what it answers. It stops at the first step that
// fails: the next could only fail, too.
func (k *checker) controlPlane(ctx context.Context, s config.Source, e config.Entry) {
	t := &target{section: e.Section, source: s, entry: e.Fallback, hints: hint.ControlPlane{Name: e.Address, Section: e.Section, Within: upstream.ConnectTimeout}}
	if e.TLS.Enabled() {
		t.hints.TLS = &hint.TLS{Certificate: e.TLS.Cert != "" || e.TLS.SPIFFE.Enabled(), SPIFFE: e.TLS.SPIFFE.Enabled()}
	}
	if !k.resolves(ctx, t) || !k.connects(ctx, t) {
		return
	}
	if e.TLS.Enabled() && !k.secured(ctx, t) {
		return
	}
	k.speaks(ctx, t)
}

// resolves: the name leads somewhere.
func (k *checker) resolves(ctx context.Context, t *target) bool {
	name := t.section + ": address"
	if network, address, err := config.SplitListen(t.entry.Address); err == nil && network == "unix" {
		t.network, t.address, t.host = network, address, "localhost"
		k.ok(name, "%s", t.address)
		return true
	}
	t.network, t.address = "tcp", t.entry.Address
	if rest, ok := strings.CutPrefix(t.entry.Address, "dns://"); ok {
		_, t.address, _ = strings.Cut(rest, "/")
	}
	t.host, _, _ = net.SplitHostPort(t.address)
	var err error
	if t.proxy, err = proxy.For(t.entry.Address); err != nil {
		k.fail(name, "", "%v", err)
		return false
	} else if t.proxy != nil {
		k.ok(name, "%s, through the proxy %s (HTTPS_PROXY)", t.address, t.proxy.Host)
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, k.o.Within)
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(ctx, t.host)
	if err != nil {
		k.fail(name, "check "+t.section+".address, and the resolver of this host", "%s is not found: %v", t.host, err)
		return false
	}
	if len(found) == 1 && found[0] == t.host {
		k.ok(name, "%s", t.address)
	} else {
		k.ok(name, "%s is %s", t.host, strings.Join(found, ", "))
	}
	return true
}

// connects: something listens there.
func (k *checker) connects(ctx context.Context, t *target) bool {
	name := t.section + ": connection"
	begin := time.Now()
	conn, err := t.dial(ctx, k.o.Within)
	if err != nil {
		hint := "see whether a firewall or network policy drops packets to it"
		switch {
		case t.proxy != nil:
			hint = "see whether HTTPS_PROXY names the right proxy and that runs, or name the control plane in NO_PROXY"
		case errors.Is(err, syscall.ECONNREFUSED):
			hint = "nothing listens there: see whether the control plane runs, and whether " + t.section + ".address has its port for xDS"
		case errors.Is(err, os.ErrNotExist):
			hint = "there is no such socket: see whether the control plane runs, and whether " + t.section + ".address has its path"
		case errors.Is(err, os.ErrPermission):
			hint = "this user may not use it: see the permissions of the socket"
		}
		k.fail(name, hint, "%v", err)
		return false
	}
	conn.Close()
	k.ok(name, "%s in %v", t.address, time.Since(begin).Round(100*time.Microsecond))
	return true
}

func (t *target) dial(ctx context.Context, within time.Duration) (net.Conn, error) {
	if t.proxy != nil {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return t.proxy.Dial(ctx, func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		})
	}
	return (&net.Dialer{Timeout: within}).DialContext(ctx, t.network, t.address)
}

// secure dials, and makes the handshake as the relay would.
func (t *target) secure(ctx context.Context, within time.Duration) (net.Conn, error) {
	raw, err := t.dial(ctx, within)
	if err != nil || !t.entry.TLS.Enabled() {
		return raw, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c, err := t.tls(ctx)
	if err != nil {
		raw.Close()
		return nil, err
	}
	conn := tls.Client(raw, c)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("handshake failed: %w", err)
	}
	return conn, nil
}

func (t *target) tls(ctx context.Context) (*tls.Config, error) {
	from := t.entry.TLS
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: from.ServerName, NextProtos: []string{"h2"}}
	if c.ServerName == "" {
		c.ServerName = t.host
	}
	if from.CA != "" {
		data, err := os.ReadFile(from.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM(data)
	}
	var own tls.Certificate
	switch {
	case from.SPIFFE.Enabled():
		m, err := certs.Fetch(ctx, certs.Files{Agent: from.SPIFFE.WorkloadAPI, TrustDomains: from.SPIFFE.TrustDomains})
		if err != nil {
			return nil, err
		}
		own, c.InsecureSkipVerify, c.VerifyConnection = *m.Pair, true, m.VerifySVID(from.SPIFFE.ServerID)
	case from.Cert != "":
		var err error
		if own, err = tls.LoadX509KeyPair(from.Cert, from.Key); err != nil {
			return nil, err
		}
	}
	c.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		t.hints.TLS.Asked.Store(true)
		if own.PrivateKey != nil && info.SupportsCertificate(&own) == nil {
			return &own, nil
		}
		return new(tls.Certificate), nil // which is none
	}
	return c, nil
}

// secured: it proves who it is, and speaks HTTP/2.
func (k *checker) secured(ctx context.Context, t *target) bool {
	name := t.section + ": TLS"
	conn, err := t.secure(ctx, k.o.Within)
	if err != nil {
		hint := t.hints.Explain(err.Error(), false)
		if errors.Is(err, context.DeadlineExceeded) {
			hint = t.entry.Address + " says nothing: see whether it speaks TLS there, and whether the server hangs"
		}
		k.fail(name, hint, "%v", err)
		return false
	}
	defer conn.Close()
	s := conn.(*tls.Conn).ConnectionState()
	if k.age(name, "the server's certificate", s.PeerCertificates) {
		k.ok(name, "%s, %s until %s", tls.VersionName(s.Version), s.PeerCertificates[0].Subject, day(s.PeerCertificates[0].NotAfter))
	}
	name = t.section + ": ALPN"
	switch {
	case s.NegotiatedProtocol == "h2":
		k.ok(name, "h2")
	case t.entry.TLS.ALPN == config.ALPNLenient:
		k.ok(name, "none, which %s.tls.alpn: lenient accepts", t.section)
	default:
		k.fail(name, t.hints.Explain("missing selected ALPN property", false), "the server selects no protocol")
		return false
	}
	return true
}
