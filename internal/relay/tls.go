package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/hint"
)

// clientCredentials are those towards an entry of the list of control planes. security
// and files are nil for plaintext. Each handshake uses the files as they are then, so that one that was
// refused for its certificate succeeds when that has been replaced.
func (r *Relay) clientCredentials(e config.Entry) (_ credentials.TransportCredentials, security *hint.TLS, files *certs.Followed, err error) {
	t := e.TLS
	rest, secure := e.OverREST()
	if !t.Enabled() && !secure {
		return insecure.NewCredentials(), nil, nil, nil
	}
	protocol := ""
	switch {
	case rest:
		protocol = "http/1.1"
	case t.ALPN == config.ALPNLenient:
		protocol = "h2"
	}
	if files, err = r.certs.Follow(t.Files(e.Section, e.Address)); err != nil {
		return nil, nil, nil, err
	}
	security = &hint.TLS{Certificate: t.Cert != "" || t.SPIFFE.Enabled(), SPIFFE: t.SPIFFE.Enabled()}
	return &clientTLS{
		TransportCredentials: credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}),
		config:               t, protocol: protocol, files: files, security: security, handshakes: r.handshakes,
	}, security, files, nil
}

// clientTLS are credentials towards a control plane. The embedded credentials only
// provide names; they make no handshake.
type clientTLS struct {
	credentials.TransportCredentials
	config     config.ClientTLS
	protocol   string // that a server is taken to speak which selects none; empty: gRPC decides
	files      *certs.Followed
	security   *hint.TLS
	handshakes *handshakes
}

// http2Suites are the cipher suites of TLS 1.2 that HTTP/2 permits (RFC 9113 appendix A),
// as gRPC has them.
var http2Suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// ClientHandshake implements credentials.TransportCredentials. It waits for the first answer
// of an agent that has just been asked, and not for one that is away.
func (c *clientTLS) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	v := &verdict{material: c.files.Material(), handshakes: c.handshakes}
	usable, err := c.files.Await(ctx)
	if err != nil {
		v.failed(err)
		return nil, nil, err
	}
	v.material = usable
	t := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: c.config.ServerName, RootCAs: v.material.Pool,
		GetClientCertificate: func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			v.asked = true
			c.security.Asked.Store(true)
			if pair := v.material.Pair; pair != nil && info.SupportsCertificate(pair) == nil {
				v.shown = true
				return pair, nil
			}
			return new(tls.Certificate), nil // which is none
		},
	}
	if v.material.Domains != nil { // a server is known by its SPIFFE ID, and not by a name
		t.InsecureSkipVerify, t.VerifyConnection = true, v.material.VerifySVID(c.config.SPIFFE.ServerID)
	}
	shake := credentials.NewTLS(t).ClientHandshake
	if c.protocol != "" {
		shake = lenient{t, c.protocol}.ClientHandshake
	}
	conn, info, err := shake(ctx, authority, raw)
	if err != nil {
		v.failed(err)
		return nil, nil, err
	}
	if v.asked {
		conn = &unheard{Conn: conn, verdict: v}
	}
	return conn, info, nil
}

// Clone is a copy that may be changed, as gRPC asks for.
func (c *clientTLS) Clone() credentials.TransportCredentials {
	clone := *c
	clone.TransportCredentials = c.TransportCredentials.Clone()
	return &clone
}

// lenient makes the handshake of a client as gRPC does, except that a server that selects
// no application protocol is taken for one that speaks the one that is wanted. gRPC offers
// this choice only through the environment of the process, and recommends a handshake of
// one's own instead.
type lenient struct {
	config   *tls.Config
	protocol string
}

// ClientHandshake offers nothing but the protocol; a server that selects something else is
// refused by crypto/tls.
func (l lenient) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := l.config.Clone()
	c.NextProtos, c.CipherSuites = []string{l.protocol}, http2Suites
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

// verdict is what a control plane makes of one handshake.
type verdict struct {
	material     *certs.Material
	asked, shown bool // for a certificate, and one
	handshakes   *handshakes
}

// failed counts the handshake. A server that asked for a certificate seldom says why it
// refuses ours, and often just goes away; then the state of our certificate suggests the
// reason.
func (v *verdict) failed(err error) {
	f, ok := certs.Classify(err)
	silent := f.Reason == certs.HandshakeOther || errors.Is(err, io.EOF)
	switch {
	case !v.asked || !silent && !f.Remote:
	case v.shown && silent:
		refused := certs.Failure{Reason: certs.HandshakeRefused, Remote: true}
		if why := refused.Against(v.material.Leaf(), time.Now()); why != refused {
			f, ok = why, true
		}
	case v.shown:
	case v.material.Pair != nil: // and it is by none of the authorities that the server asked for
		f, ok = certs.Failure{Reason: certs.HandshakeUnknownCA, Remote: true}, true
	default:
		f, ok = certs.Failure{Reason: certs.HandshakeNoCertificate, Remote: true}, true
	}
	if ok {
		v.handshakes.failed(f, v.material)
	}
}

// unheard is a connection to a control plane that has asked for a certificate. With TLS
// 1.3 the control plane looks at our certificate after the handshake, and a refusal
// comes in place of its first data.
type unheard struct {
	net.Conn
	verdict *verdict
	over    atomic.Bool // it has said something, or broken
}

func (c *unheard) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.note(n, err)
	return n, err
}

func (c *unheard) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.note(0, err)
	return n, err
}

func (c *unheard) note(read int, err error) {
	if c.over.Load() || read == 0 && err == nil {
		return
	}
	if first := !c.over.Swap(true); first && read == 0 && !errors.Is(err, net.ErrClosed) {
		c.verdict.failed(err)
	}
}

// serverCredentials are those towards clients. They replace the previous ones.
func (r *Relay) serverCredentials(t config.ServerTLS) (credentials.TransportCredentials, error) {
	if !t.Enabled() {
		r.polled.Store(nil)
		if old := r.serving.Swap(nil); old != nil {
			old.Close()
		}
		return &serverPlain{insecure.NewCredentials(), r.handshakes}, nil
	}
	followed, err := r.certs.Follow(t.Files())
	if err != nil {
		return nil, err
	}
	if old := r.serving.Swap(followed); old != nil {
		old.Close()
	}
	// One configuration for all, so that its session tickets are; who resumes a session is
	// judged by the authorities of then.
	base := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m, err := followed.Usable()
		if err != nil {
			return nil, err
		}
		if m.Pair == nil {
			return nil, fmt.Errorf("%s names no certificate", followed.Files().Section)
		}
		c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*m.Pair}}
		if m.Pool != nil {
			c.ClientCAs, c.ClientAuth = m.Pool, tls.RequireAndVerifyClientCert
		}
		if m.Domains != nil {
			c.VerifyConnection = m.VerifySVID("")
		}
		return c, nil
	}}
	r.polled.Store(overHTTP(base))
	return &serverTLS{credentials.NewTLS(base), followed, r.handshakes}, nil
}

// serverTLS are credentials towards clients, whose failures are counted: gRPC tells nobody
// of them.
type serverTLS struct {
	credentials.TransportCredentials
	files      *certs.Followed
	handshakes *handshakes
}

// ServerHandshake implements credentials.TransportCredentials.
func (s *serverTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := s.TransportCredentials.ServerHandshake(raw)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // downstream reports that
		if f, ok := certs.Classify(err); ok {
			s.handshakes.refused(raw, f, s.files, err)
		}
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (s *serverTLS) Clone() credentials.TransportCredentials {
	clone := *s
	clone.TransportCredentials = s.TransportCredentials.Clone()
	return &clone
}
