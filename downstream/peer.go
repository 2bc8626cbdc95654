package downstream

import (
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
	switch a := p.Addr.(type) {
	case *net.TCPAddr:
		out.Local = a.IP.IsLoopback()
	case *net.UnixAddr:
		out.Local = true
	}
	if t, ok := info.(credentials.TLSInfo); ok && len(t.State.VerifiedChains) > 0 {
		leaf := t.State.VerifiedChains[0][0]
		switch {
		case t.SPIFFEID != nil:
			out.Identity = t.SPIFFEID.String()
		case len(leaf.URIs) > 0 && leaf.URIs[0].Scheme != "dns" && leaf.URIs[0].Scheme != "subject": // those of the next cases
			out.Identity = leaf.URIs[0].String()
		case len(leaf.DNSNames) > 0:
			out.Identity = "dns:" + leaf.DNSNames[0]
		default:
			out.Identity = "subject:" + leaf.Subject.String()
		}
	}
	if out.Holder = out.Identity; out.Holder == "" {
		out.Holder = host(p.Addr)
	}
	out.Relay = out.Local || out.Identity != "" && slices.Contains(config.Relays, out.Identity)
	return out, c
}
