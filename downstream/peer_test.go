package downstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// proves is a client that connects to a Server with a certificate, or with none, and whom the Server takes it for.
func proves(t *testing.T, network string, secure bool, ca *certstest.Authority, c *x509.Certificate) session.Peer {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "") // t.TempDir's names are too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		address = filepath.Join(dir, "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	pair := func(c x509.Certificate) []tls.Certificate {
		p, err := tls.X509KeyPair(ca.Issue(t, c))
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{p}
	}
	server, client := insecure.NewCredentials(), insecure.NewCredentials()
	if secure {
		shows := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: ca.Pool(), ServerName: "127.0.0.1"}
		if c != nil {
			shows.Certificates = pair(*c)
		}
		client = credentials.NewTLS(shows)
		server = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: pair(x509.Certificate{}), ClientCAs: ca.Pool(), ClientAuth: tls.VerifyClientCertIfGiven})
	}
	joined := joins{oneGroup{fanout.NewHub(fanout.Config{})}, make(chan session.Peer, 1)}
	_, stop := serving(t, ServerConfig{Config: session.Config{AckTimeout: time.Minute, MaxName: 100, MaxNames: 100}, Groups: joined, Credentials: server}, l)
	defer stop()
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
	}
	conn, err := grpc.NewClient("passthrough:///relay", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(client))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		ended <- err
	}()
	var p session.Peer
	select {
	case p = <-joined.peers:
	case err := <-ended:
		t.Fatal(err)
	}
	return p
}

// joins has all clients in one group, and tells who they are.
type joins struct {
	oneGroup
	peers chan session.Peer
}

func (j joins) Join(p session.Peer, n *core.Node, t cache.TypeURL) (session.Membership, *session.End) {
	select {
	case j.peers <- p:
	default:
	}
	return j.oneGroup.Join(p, n, t)
}

// TestIdentitiesAreOfOneKind: nothing in a certificate makes a client pass for one that is known in another way.
func TestIdentitiesAreOfOneKind(t *testing.T) {
	ca := certstest.NewAuthority(t, "ours")
	const spiffe, other = "spiffe://td/ns/a/sa/b", "https://a.example/b"
	for _, tt := range []struct {
		name string
		uris []string
		dns  []string
		want string
	}{
		{"a SPIFFE ID", []string{spiffe}, []string{"web"}, spiffe},
		{"another URI", []string{other}, []string{"web"}, other},
		{"a name", nil, []string{"web", "b"}, "dns:web"},
		{"neither", nil, nil, "subject:CN=cn"},
		{"two SPIFFE IDs", []string{spiffe, "spiffe://td/ns/c/sa/d"}, []string{"web"}, "dns:web"},
		{"a SPIFFE ID and another URI", []string{spiffe, other}, nil, "subject:CN=cn"},
		{"another URI and a SPIFFE ID", []string{other, spiffe}, nil, other},
		{"a trust domain without a path", []string{"spiffe://td"}, []string{"web"}, "dns:web"},
		{"scheme spiffe without a trust domain", []string{"spiffe:td/ns/a/sa/b"}, nil, "subject:CN=cn"},
		{"scheme spiffe with a user", []string{"spiffe://me@td/ns/a/sa/b"}, nil, "subject:CN=cn"},
		{"a user's", []string{"unix:uid=0"}, []string{"web"}, "dns:web"},
		{"a user's in capitals", []string{"UNIX:uid=0"}, nil, "subject:CN=cn"},
		{"a name's", []string{"dns:admin"}, []string{"web"}, "dns:web"},
		{"a subject's", []string{"subject:CN=root"}, nil, "subject:CN=cn"},
		{"nobody's", []string{"anonymous"}, nil, "subject:CN=cn"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &x509.Certificate{Subject: pkix.Name{CommonName: "cn"}, DNSNames: tt.dns}
			for _, text := range tt.uris {
				u, err := url.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				u.Scheme = text[:len(u.Scheme)] // in capitals, if it is
				c.URIs = append(c.URIs, u)
			}
			if p := proves(t, "tcp", true, ca, c); p.Identity != tt.want || p.Principal != tt.want {
				t.Errorf("it is %q, and is taken for %q; want %q", p.Identity, p.Principal, tt.want)
			}
		})
	}
}

// TestPrincipals: a certificate counts before the user of a Unix socket, and without either a client is anybody.
func TestPrincipals(t *testing.T) {
	ca := certstest.NewAuthority(t, "ours")
	user := "anonymous"
	if runtime.GOOS == "linux" {
		user = fmt.Sprint("unix:uid=", os.Getuid())
	}
	shown := &x509.Certificate{DNSNames: []string{"web"}}
	for _, tt := range []struct {
		name, network string
		secure        bool
		shows         *x509.Certificate
		identity      string
		want          string
	}{
		{"plaintext", "tcp", false, nil, "", "anonymous"},
		{"TLS without a certificate", "tcp", true, nil, "", "anonymous"},
		{"TLS", "tcp", true, shown, "dns:web", "dns:web"},
		{"a socket", "unix", false, nil, "", user},
		{"TLS on a socket without a certificate", "unix", true, nil, "", user},
		{"TLS on a socket", "unix", true, shown, "dns:web", "dns:web"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if p := proves(t, tt.network, tt.secure, ca, tt.shows); p.Identity != tt.identity || p.Principal != tt.want {
				t.Errorf("it is %q, and is taken for %q; want %q and %q", p.Identity, p.Principal, tt.identity, tt.want)
			}
		})
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
