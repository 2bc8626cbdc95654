package certs

import (
	"crypto/tls"
	"errors"
)

// ShownIn is what the certificate calls itself that a peer has shown in a handshake which failed over
// it, or "". Nobody has verified it.
func ShownIn(err error) string {
	var v *tls.CertificateVerificationError
	if !errors.As(err, &v) || len(v.UnverifiedCertificates) == 0 {
		return ""
	}
	leaf := v.UnverifiedCertificates[0]
	if subject := leaf.Subject.String(); subject != "" && spiffeOf(leaf) == "" {
		return clip(subject)
	}
	return nameOf(leaf)
}
