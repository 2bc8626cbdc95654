package consul

import (
	"crypto/tls"
	"fmt"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// certificate is what a sidecar shows to whoever calls it.
type certificate struct{ serial, issuer string }

// shown asks the public listener of a sidecar for its certificate.
func (m *mesh) shown(service string) (c certificate) {
	m.t.Helper()
	eventually(m.t, func() error {
		conn, err := tls.Dial("tcp", peer.Local(m.ports[service]), &tls.Config{
			InsecureSkipVerify: true, // who it is, is what the test asks
			VerifyConnection: func(s tls.ConnectionState) error {
				leaf := s.PeerCertificates[0]
				c = certificate{leaf.SerialNumber.String(), fmt.Sprintf("%x", leaf.AuthorityKeyId)}
				return nil
			},
		})
		if err == nil {
			conn.Close()
		}
		if c.serial == "" {
			return err
		}
		return nil
	})
	return c
}
