package downstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// TestIdentitiesAreOfOneKind: no URI in a certificate makes a client pass for one that is known by its DNS name.
func TestIdentitiesAreOfOneKind(t *testing.T) {
	of := func(leaf *x509.Certificate) string {
		info := credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}}
		p, _ := peerOf(peer.NewContext(context.Background(), &peer.Peer{Addr: addr{}, AuthInfo: info}), &session.Config{})
		return p.Identity
	}
	u, _ := url.Parse("dns:web.example")
	if a, b := of(&x509.Certificate{DNSNames: []string{"web.example"}}), of(&x509.Certificate{URIs: []*url.URL{u}}); a == b {
		t.Errorf("both are %q", a)
	}
}

type addr struct{}

func (addr) Network() string { return "x" }
func (addr) String() string  { return "x" }
