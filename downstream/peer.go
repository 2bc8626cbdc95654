package downstream

import (
	"cmp"
	"context"
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
	return out, c
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
	client.Principal = cmp.Or(client.Identity, "anonymous")
	if client.Holder = client.Identity; client.Holder == "" {
		client.Holder = host(address)
	}
	client.Relay = client.Local || client.Identity != "" && slices.Contains(relays, client.Identity)
}

// identityOf is what the client's certificate proves, or "".
func identityOf(info credentials.AuthInfo) string {
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.VerifiedChains) == 0 {
		return ""
	}
	leaf := t.State.VerifiedChains[0][0]
	switch {
	case t.SPIFFEID != nil:
		return t.SPIFFEID.String()
	case len(leaf.URIs) > 0 && leaf.URIs[0].Scheme != "dns" && leaf.URIs[0].Scheme != "subject": // those of the next cases
		return leaf.URIs[0].String()
	case len(leaf.DNSNames) > 0:
		return "dns:" + leaf.DNSNames[0]
	}
	return "subject:" + leaf.Subject.String()
}
