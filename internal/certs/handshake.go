package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// Reason is why a handshake failed.
type Reason string

// The reasons. Each may be of either end: a certificate that expired is this relay's, or
// the peer's.
const (
	HandshakeExpired       Reason = "expired"
	HandshakeNotYetValid   Reason = "not_yet_valid"
	HandshakeUnknownCA     Reason = "unknown_ca"
	HandshakeWrongName     Reason = "wrong_name"
	HandshakeNoCertificate Reason = "no_certificate"
	HandshakeRefused       Reason = "refused" // the peer does not accept ours, and does not say why
	HandshakeProtocol      Reason = "protocol"
	HandshakeNoSVID        Reason = "no_svid" // our agent has sent no certificate yet
	HandshakeOther         Reason = "other"
)

// Reasons are all there are.
func Reasons() []Reason {
	return []Reason{
		HandshakeExpired, HandshakeNotYetValid, HandshakeUnknownCA, HandshakeWrongName,
		HandshakeNoCertificate, HandshakeRefused, HandshakeProtocol, HandshakeNoSVID, HandshakeOther,
	}
}

// Failure is a handshake that failed.
type Failure struct {
	Reason Reason
	// Remote: the peer has said so, of us. Else we found it, of the peer.
	Remote bool
}

// Classify says why a handshake failed. ok is false if there was none: the peer went away
// without a word, as a probe of the port does, or nobody wanted it any more.
func Classify(err error) (f Failure, ok bool) {
	var (
		invalid  x509.CertificateInvalidError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		record   tls.RecordHeaderError
		none     *noSVID
		other    *otherID
	)
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, context.Canceled), errors.Is(err, net.ErrClosed):
		return Failure{}, false
	case alerted(err):
		return Failure{alertReason(err.Error()), true}, true
	case strings.Contains(err.Error(), "local error: tls: bad record MAC"):
		// OpenSSL refuses a certificate in a record that it does not encrypt yet.
		return Failure{HandshakeRefused, true}, true
	case errors.As(err, &record):
		return Failure{Reason: HandshakeProtocol}, true
	case errors.As(err, &none):
		return Failure{Reason: HandshakeNoSVID}, true
	case errors.As(err, &hostname), errors.As(err, &other):
		return Failure{Reason: HandshakeWrongName}, true
	case errors.As(err, &unknown):
		return Failure{Reason: HandshakeUnknownCA}, true
	case errors.As(err, &invalid):
		return Failure{Reason: invalidReason(invalid)}, true
	}
	return Failure{Reason: textReason(err.Error())}, true
}

// Against is the failure where the peer was shown a certificate of ours, whose state may
// say what it did not; nil: it was shown none.
func (f Failure) Against(ours *x509.Certificate, now time.Time) Failure {
	if !f.Remote || f.Reason != HandshakeRefused || ours == nil {
		return f
	}
	switch problem(ours, now) {
	case Expired:
		f.Reason = HandshakeExpired
	case NotYetValid:
		f.Reason = HandshakeNotYetValid
	}
	return f
}

// alerted: the peer has refused us in the words of TLS.
func alerted(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// has: text has one of the parts.
func has(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// alertReason is what an alert says. Its type is not exported, so that its words count.
func alertReason(text string) Reason {
	switch {
	case has(text, "tls: expired certificate"):
		return HandshakeExpired
	case has(text, "tls: unknown certificate authority"):
		return HandshakeUnknownCA
	case has(text, "tls: unrecognized name"):
		return HandshakeWrongName
	case has(text, "tls: certificate required"):
		return HandshakeNoCertificate
	case has(text, "certificate", "access denied"):
		return HandshakeRefused
	case has(text, "protocol", "handshake failure", "insufficient security"):
		return HandshakeProtocol
	}
	return HandshakeOther
}

func invalidReason(err x509.CertificateInvalidError) Reason {
	switch {
	case err.Reason != x509.Expired:
		return HandshakeOther
	case strings.Contains(err.Detail, "is before"):
		return HandshakeNotYetValid
	default:
		return HandshakeExpired
	}
}

// textReason is for errors of crypto/tls and gRPC that have no type of their own.
func textReason(text string) Reason {
	switch {
	case has(text, "didn't provide a certificate"):
		return HandshakeNoCertificate
	case has(text, "x509: certificate is not valid for any names", "x509: cannot validate certificate for"):
		return HandshakeWrongName
	case has(text, "ALPN", "unsupported versions", "no cipher suite", "protocol version", "unexpected message", "application protocols"):
		return HandshakeProtocol
	}
	return HandshakeOther
}
