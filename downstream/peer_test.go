package downstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
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

// TestHolder: whatever address of its network a host connects from, its streams take of one share.
func TestHolder(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:5":                 "192.0.2.7",
		"[::ffff:192.0.2.7]:6":        "192.0.2.7",
		"[2001:db8:1:2:a:b:c:d]:7":    "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:8":    "2001:db8:1:2::/64",
		"[fe80:0:0:3:1:2:3:4%eth0]:9": "fe80:0:0:3::/64",
	} {
		p, _ := peerOf(peer.NewContext(context.Background(), &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))}), &session.Config{})
		if p.Holder != want {
			t.Errorf("the holder of what %s takes is %q, want %q", address, p.Holder, want)
		}
	}
}
