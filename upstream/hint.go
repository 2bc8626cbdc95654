package upstream

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What an operator is to do about a connection that does not come about. TLS and gRPC
// say what they saw, which is a broken pipe where a certificate is missing. What follows
// from it is said here, and goes wherever the error goes: into the log, to clients
// (ERR-7), and to whoever looks at the group.

// Security is TLS on the way to an Endpoint, as far as hints need to know.
type Security struct {
	// Certificate: there is one to show. Asked: the server has asked for one.
	Certificate bool
	Asked       atomic.Bool
}

// explained is why a stream could not begin, with what to do about it before it, if that
// is known. reached: there has been a stream to the endpoint.
func (e *Endpoint) explained(err error, reached bool) error {
	s := status.Convert(err)
	if s.Code() != codes.Unavailable {
		return err // it is the server's own word
	}
	if hint := e.hint(failure(s.Message()), reached); hint != "" {
		return status.Error(s.Code(), hint+" ("+s.Message()+")")
	}
	return err
}

// Hint says what a failure to connect, in the words of TLS and gRPC, tells of the endpoint,
// and what to do about it; empty: nothing.
func (e *Endpoint) Hint(failed string) string { return e.hint(failure(failed), false) }

// failure is what gRPC says of an attempt to connect.
type failure string

// says: any of the parts is in it.
func (f failure) says(parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(string(f), part) })
}

// broke: the peer ended the connection before there was a stream, without a word that
// we understand.
func (f failure) broke() bool {
	return !f.alert() && f.says("error reading server preface", "broken pipe", "connection reset by peer", "EOF", "handshake failed: context deadline exceeded")
}

// mute: the peer took the connection, and said nothing until we gave up.
func (f failure) mute() bool {
	return f.says("error reading server preface") && f.says("use of closed network connection") || f.says("handshake failed: context deadline exceeded")
}

// alert: the peer has said in the words of TLS that it refuses us.
func (f failure) alert() bool { return f.says("remote error: tls: ") }

// misnamed: the certificate is for other names. There are as many wordings as kinds of
// names.
func (f failure) misnamed() bool {
	return f.says("x509: certificate is valid for", "x509: certificate is not valid for any names",
		"x509: cannot validate certificate for", "x509: certificate relies on legacy Common Name",
		"remote error: tls: unrecognized name")
}

// refusesCertificate: the peer has something against ours.
func (f failure) refusesCertificate() bool {
	return f.says("remote error: tls: certificate required", "remote error: tls: bad certificate", "remote error: tls: unknown certificate",
		"remote error: tls: expired certificate", "remote error: tls: revoked certificate", "remote error: tls: unsupported certificate",
		"remote error: tls: access denied")
}

// about: a failure is about the client certificate. If the server has not said so, it
// counts that it has asked for one: with TLS 1.3 the client is through before the server
// has looked, and gets to see no more than a broken pipe, more often than not.
func (s *Security) about(f failure, reached bool) bool {
	return f.refusesCertificate() || !reached && s.Asked.Load() && (f.broke() || f.alert())
}

const notHTTP2 = "does not speak HTTP/2 there: set upstream.address to its port for gRPC"

// hint says in plain words what a failure tells of the endpoint, and what to do about it;
// empty: nothing. Once there has been a stream, a connection that only breaks is no
// mistake of the configuration.
func (e *Endpoint) hint(f failure, reached bool) string {
	text := ""
	switch s := e.Security; {
	case f.mute():
		text = fmt.Sprintf("accepts connections and says nothing within %v: it hangs, or upstream.address is not its port for gRPC", connectTimeout)
	case !reached && f.says("connect: connection refused"):
		text = "has nothing that listens: see whether the control plane runs, and whether upstream.address has its port for xDS"
	case s == nil && !reached && f.broke():
		text = "does not answer in plaintext: if it speaks TLS, set upstream.tls.ca, or upstream.tls.server_name for the system's roots"
	case s == nil:
	case f.says("missing selected ALPN property"):
		text = "selects no application protocol (ALPN): if it is a gRPC server all the same, as Consul is, set upstream.tls.alpn: lenient"
	case f.says("selected unadvertised ALPN protocol", "remote error: tls: no application protocol"):
		text = notHTTP2
	case f.says("first record does not look like a TLS handshake"):
		text = "does not speak TLS: set upstream.address to its port for TLS, or leave upstream.tls out, with upstream.insecure: true if it is not on this host"
	case f.says("certificate signed by unknown authority"):
		text = "has a certificate that nobody signed who is trusted: set upstream.tls.ca to a file with the authority that signed it"
	case f.misnamed():
		text = "has no certificate for the name it was called by: set upstream.tls.server_name to one that is in its certificate"
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
	case reached || !f.broke():
	case f.says("handshake failed"):
		text = "hangs up on TLS: if it speaks plaintext, leave upstream.tls out, with upstream.insecure: true if it is not on this host"
	default:
		text = notHTTP2
	}
	if text == "" {
		return ""
	}
	return e.Name + " " + strings.ReplaceAll(text, "upstream.", e.Section+".")
}
