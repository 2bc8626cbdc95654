//go:build linux

package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// The names of the files of one party.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
	caFile   = "ca.crt"
)

// party is whoever has a certificate, in a directory of its own.
type party string

func (p party) path(file string) string { return filepath.Join(string(p), file) }

// load reads what a party has now. It is not the relay that reads here: what is just being
// replaced is read again until it fits.
func (p party) load(ctx context.Context) (m *certs.Material, err error) {
	for range 200 {
		m, err = certs.Load(certs.Files{Cert: p.path(certFile), Key: p.path(keyFile), CA: p.path(caFile)})
		if err == nil || !pause(ctx, 5*time.Millisecond) {
			break
		}
	}
	return m, err
}

// serverCredentials are those of a control plane, which demands a certificate.
func serverCredentials(dir string) credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		m, err := party(dir).load(hello.Context())
		if err != nil {
			return nil, err
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*m.Pair},
			ClientCAs: m.Pool, ClientAuth: tls.RequireAndVerifyClientCert,
		}, nil
	}})
}

// clientCredentials are those of clients, who show a certificate.
type clientCredentials struct {
	credentials.TransportCredentials
	party party
}

func newClientCredentials(p party) credentials.TransportCredentials {
	return clientCredentials{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), p}
}

func (c clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	m, err := c.party.load(ctx)
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: m.Pool, Certificates: []tls.Certificate{*m.Pair},
	}).ClientHandshake(ctx, authority, raw)
}

func (c clientCredentials) Clone() credentials.TransportCredentials {
	return clientCredentials{c.TransportCredentials.Clone(), c.party}
}

// rotation replaces the certificates of all parties, each time with those of another
// authority. Everybody trusts the authority before and the one after, too, so that nobody
// is refused who is at most one step behind or ahead.
type rotation struct {
	t           testing.TB
	replace     certstest.Replace
	parties     []party
	authorities []*certstest.Authority
	steps       int
}

func (r *rotation) authority(n int) *certstest.Authority {
	for len(r.authorities) <= n {
		r.authorities = append(r.authorities, certstest.NewAuthority(r.t, fmt.Sprint("authority ", len(r.authorities))))
	}
	return r.authorities[n]
}

func (r *rotation) join(name string) party {
	p := party(filepath.Join(r.t.TempDir(), name))
	if err := os.Mkdir(string(p), 0o700); err != nil {
		r.t.Fatal(err)
	}
	r.parties = append(r.parties, p)
	return p
}

// step replaces everything, and returns when the certificates expire, which is another
// time at each step.
func (r *rotation) step() (notAfter time.Time) {
	r.steps++
	notAfter = time.Now().Add(24 * time.Hour).Add(time.Duration(r.steps) * time.Second).Truncate(time.Second)
	signer := r.authority(r.steps)
	bundle := bytes.Join([][]byte{r.authority(r.steps - 1).PEM, signer.PEM, r.authority(r.steps + 1).PEM}, nil)
	for _, p := range r.parties {
		cert, key := signer.Issue(r.t, x509.Certificate{NotAfter: notAfter})
		r.replace(r.t, string(p), map[string][]byte{certFile: cert, keyFile: key, caFile: bundle})
	}
	return notAfter
}

// knockers are clients that connect, ask for all clusters, and go, again and again.
type knockers struct {
	handshakes, failures atomic.Int64
	mu                   sync.Mutex
	why                  []string
}

// knock has some clients come one after the other at intervals until ctx ends.
func (k *knockers) knock(ctx context.Context, target string, creds credentials.TransportCredentials, every time.Duration) {
	for pause(ctx, every) {
		err := once(target, creds)
		k.handshakes.Add(1)
		if err != nil {
			k.failures.Add(1)
			k.mu.Lock()
			if len(k.why) < 10 {
				k.why = append(k.why, fmt.Sprintf("%s %v", time.Now().Format("15:04:05.000"), err))
			}
			k.mu.Unlock()
		}
	}
}

// once is a client from its handshake to its first answer.
func once(target string, creds credentials.TransportCredentials) error {
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	if err := s.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "knocker"}, TypeUrl: string(cache.Cluster)}); err != nil {
		return err
	}
	_, err = s.Recv()
	return err
}
