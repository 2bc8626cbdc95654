// Package hint says what an operator can do about a connection to a control plane that fails. TLS
// and gRPC report only what they saw, for example a broken pipe when a certificate is missing.
package hint

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// ControlPlane has the facts about a control plane that hints need.
type ControlPlane struct {
	Name    string        // what hints call it
	Section string        // the key of the configuration under which it is written, such as "upstream"
	TLS     *TLS          // nil for plaintext
	Within  time.Duration // how long one attempt to connect may take
}

// TLS has the facts about TLS to a control plane.
type TLS struct {
	// Certificate means that a client certificate is configured, and Asked that the server
	// has asked for one.
	Certificate bool
	Asked       atomic.Bool
	// SPIFFE means that an agent gives the certificate, and that servers are known by their SPIFFE IDs.
	SPIFFE bool
}

// failure is gRPC's message about a failed attempt to connect.
type failure string

// says reports whether any of the parts is in the message.
func (f failure) says(parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(string(f), part) })
}

// broke reports whether the peer ended the connection before there was a stream, and gave no
// reason.
func (f failure) broke() bool {
	return !f.alert() && f.says("error reading server preface", "broken pipe", "connection reset by peer", "EOF", "handshake failed: context deadline exceeded")
}

// mute reports whether the peer accepted the connection and sent nothing until the timeout.
func (f failure) mute() bool {
	return f.says("error reading server preface") && f.says("use of closed network connection") || f.says("handshake failed: context deadline exceeded")
}

// alert reports whether the peer refused the relay with a TLS alert.
func (f failure) alert() bool { return f.says("remote error: tls: ") }

// misnamed reports whether the certificate is for other names. The wording depends on the kind
// of the name.
func (f failure) misnamed() bool {
	return f.says("x509: certificate is valid for", "x509: certificate is not valid for any names",
		"x509: cannot validate certificate for", "x509: certificate relies on legacy Common Name",
		"remote error: tls: unrecognized name")
}

// refusesCertificate reports whether a TLS alert of the peer is about the client certificate.
func (f failure) refusesCertificate() bool {
	return f.says("remote error: tls: certificate required", "remote error: tls: bad certificate", "remote error: tls: unknown certificate",
		"remote error: tls: expired certificate", "remote error: tls: revoked certificate", "remote error: tls: unsupported certificate",
		"remote error: tls: access denied")
}

// about reports whether a failure is about the client certificate. Without a clear alert, it is
// if the server has asked for a certificate: in TLS 1.3 the handshake ends for the client before
// the server has checked the certificate, so that often the client sees only a broken pipe.
func (s *TLS) about(f failure, reached bool) bool {
	return f.refusesCertificate() || !reached && s.Asked.Load() && (f.broke() || f.alert())
}

// spiffe explains failures that are about SVIDs; else it is empty.
func (s *TLS) spiffe(f failure, reached bool) string {
	switch {
	case s == nil || !s.SPIFFE:
	case f.says("has sent no certificate yet"):
		return "is not connected to yet, since the relay has no certificate: see whether the agent of upstream.tls.spiffe.workload_api runs, and has an entry for the relay"
	case f.says("certificate signed by unknown authority"):
		return "has a certificate that its own trust domain has not signed, or of a trust domain that is not among upstream.tls.spiffe.trust_domains"
	case f.says("and not for spiffe://"):
		return "is another server than upstream.tls.spiffe.server_id says"
	case f.says("could not get leaf SPIFFE ID", "x509svid: leaf certificate with"):
		return "has a certificate that is no X509-SVID: see whether it has one of upstream.tls.spiffe.trust_domains"
	case f.says("remote error: tls: expired certificate"):
		return "does not accept the relay's SVID: it has expired; see why the agent of upstream.tls.spiffe.workload_api has not renewed it"
	case f.says("remote error: tls: unknown certificate authority"), s.about(f, reached):
		return "does not accept the relay's SVID: see whether it trusts that trust domain, and lets this SPIFFE ID in"
	}
	return ""
}

const notHTTP2 = "does not speak HTTP/2 there: set upstream.address to its port for gRPC"

// Explain explains a failure to connect, given the message of TLS or gRPC, and says what to do about
// it. It is empty if there is nothing to say. reached means that there was a stream to the control
// plane before; then the configuration was right, and what has changed is elsewhere.
func (c *ControlPlane) Explain(failed string, reached bool) string {
	text, f := "", failure(failed)
	svid := c.TLS.spiffe(f, reached)
	switch s := c.TLS; {
	case svid != "":
		text = svid
	case f.mute():
		text = fmt.Sprintf("accepts connections and sends nothing within %v: it hangs, or upstream.address is not its port for gRPC", c.Within)
	case reached && f.says("connect: connection refused"):
		text = "refuses connections, and did not before: see whether the control plane runs"
	case f.says("connect: connection refused"):
		text = "refuses connections: see whether the control plane runs, and whether upstream.address has its port for xDS"
	case s == nil && reached && f.broke():
		text = "hangs up at once, and did not before: see whether the control plane runs behind what listens there, and whether that still speaks plaintext"
	case s == nil && f.broke():
		text = "does not answer in plaintext: if it speaks TLS, set upstream.tls.ca, or upstream.tls.server_name for the system's roots"
	case s == nil:
	case f.says("missing selected ALPN property"):
		text = "selects no application protocol (ALPN): if it is a gRPC server all the same, as Consul is, set upstream.tls.alpn: lenient"
	case f.says("selected unadvertised ALPN protocol", "remote error: tls: no application protocol"):
		text = notHTTP2
	case f.says("first record does not look like a TLS handshake"):
		text = "does not speak TLS: set upstream.address to its port for TLS, or leave upstream.tls out, with upstream.insecure: true if it is not on this host"
	case f.says("certificate signed by unknown authority"):
		text = "has a certificate from an authority that is not trusted: set upstream.tls.ca to a file with the authority that signed it"
	case f.misnamed():
		text = "has no certificate for the name that the relay expects: set upstream.tls.server_name to one that is in its certificate"
	case f.says("x509: certificate has expired or is not yet valid") && f.says(" is before "):
		text = "has a certificate that is not valid yet: set the clock of this host, or wait"
	case f.says("x509: certificate has expired or is not yet valid"):
		text = "has a certificate that has expired: renew it there, or set the clock of this host"
	case f.says("remote error: tls: expired certificate"):
		text = "does not accept the client certificate: it has expired; renew the files of upstream.tls.cert and upstream.tls.key, which are then used without a restart"
	case s.Certificate && f.says("remote error: tls: unknown certificate authority"):
		text = "does not accept the client certificate: it does not trust the authority that signed it; set upstream.tls.cert and upstream.tls.key to one that it trusts"
	case s.about(f, reached) && !s.Certificate:
		text = "wants a client certificate: set upstream.tls.cert and upstream.tls.key"
	case s.about(f, reached):
		text = "does not accept the client certificate: set upstream.tls.cert and upstream.tls.key to one that is valid and that it trusts"
	case !f.broke():
	case reached:
		text = "hangs up at once, and did not before: see whether the control plane runs behind what listens there, and whether that still accepts what upstream.tls says"
	case f.says("handshake failed"):
		text = "hangs up on TLS: if it speaks plaintext, leave upstream.tls out, with upstream.insecure: true if it is not on this host"
	default:
		text = notHTTP2
	}
	if text == "" {
		return ""
	}
	return c.Name + " " + strings.ReplaceAll(text, "upstream.", c.Section+".")
}
