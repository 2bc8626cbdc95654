package downstream

import (
	"cmp"
	"context"
	"crypto/x509"
	"net"
	"slices"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/hop"
)

// PeerName is what a client is called by its address.
func PeerName(a net.Addr) string {
	if _, ok := a.(*net.UnixAddr); ok {
		return "unix"
	}
	return a.String()
}

// host is what a client's address says of where it is, without its port. Of an IPv6 address that is the network of
// 64 bits, since a host may have all addresses of its network.
func host(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return PeerName(a)
	}
	addr := tcp.AddrPort().Addr().Unmap()
	if addr.Is4() {
		return addr.String()
	}
	const network = 64
	prefix, _ := addr.WithZone("").Prefix(network) // it fails only for other lengths
	return prefix.String()
}

// peerOf returns who the client is. Its identity comes from a verified certificate only, never
// from what the client says of itself.
func peerOf(ctx context.Context, config *session.Config) (session.Peer, *conn) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return session.Peer{}, nil
	}
	out := session.Peer{Address: PeerName(p.Addr), Via: hop.Via(metadata.ValueFromIncomingContext(ctx, hop.ViaHeader))}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		out.Sent(md, config)
	}
	info, c := p.AuthInfo, (*conn)(nil)
	if t, ok := info.(tag); ok {
		info, c = t.AuthInfo, t.conn
	}
	identify(&out, p.Addr, info, config.Relays)
	out.Principal = principal(out.Identity, c)
	return out, c
}

// nobodyKnown is the principal of clients of whom nothing is proved.
const nobodyKnown = "anonymous"

// principal is whom rules take a client for.
func principal(identity string, c *conn) string {
	user := ""
	if c != nil {
		user = c.user
	}
	return cmp.Or(identity, user, nobodyKnown)
}

// identify says what a connection shows of the client: its address, and the handshake if it is over.
func identify(client *session.Peer, address net.Addr, info credentials.AuthInfo, relays []string) {
	switch a := address.(type) {
	case *net.TCPAddr:
		client.Local = a.IP.IsLoopback()
	case *net.UnixAddr:
		client.Local = true
	}
	client.Identity = identityOf(info)
	if client.Holder = client.Identity; client.Holder == "" {
		client.Holder = host(address)
	}
	client.Relay = client.Local || client.Identity != "" && slices.Contains(relays, client.Identity)
}

// identityOf is what the client's certificate proves, or "". Identities of different kinds never look alike, whatever is
// in a certificate.
func identityOf(info credentials.AuthInfo) string {
	leaf := proofOf(info)
	if leaf == nil {
		return ""
	}
	t, _ := info.(credentials.TLSInfo)
	switch {
	case t.SPIFFEID != nil:
		return t.SPIFFEID.String()
	case len(leaf.URIs) > 0 && !slices.Contains(otherKinds, leaf.URIs[0].Scheme):
		return leaf.URIs[0].String()
	case len(leaf.DNSNames) > 0:
		return "dns:" + leaf.DNSNames[0]
	}
	return "subject:" + leaf.Subject.String()
}

// otherKinds are the schemes of URIs that are no identity. Those of scheme spiffe are SPIFFE IDs, and a certificate has
// exactly one of these and no other URI, or none. The others would pass for a principal of another kind.
var otherKinds = []string{"spiffe", "dns", "subject", "unix", ""}

// proofOf is the certificate that the handshake has verified, or nil.
func proofOf(info credentials.AuthInfo) *x509.Certificate {
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.VerifiedChains) == 0 {
		return nil
	}
	return t.State.VerifiedChains[0][0]
}
