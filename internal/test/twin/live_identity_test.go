package twin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/internal/certs/certstest"
	"github.com/xds-relay/xds-relay/internal/config"
)

// Groups that are told apart by identity: the relay listens with TLS and asks for certificates.
// Each client has one of its own, and what it says of itself is that it is of another group
// (NODE-6). All of it takes place in the bubble: what reads the files of certificates again waits
// for time alone, and the certificates are good whenever a bubble begins.

// identities are what the certificates of each group's clients prove.
var identities = []string{"spiffe://twin.test/blue", "spiffe://twin.test/blue/red", "dns:twin.test"}

// papers are the certificates of a relay and of its clients.
type papers struct {
	files   config.ServerTLS
	keyFile string // for the snapshot
	pool    *x509.CertPool
	clients [][]tls.Certificate // by group, and client
}

// perGroup is how many clients a game has.
const perGroup = 4

func newPapers(t *testing.T) *papers {
	t.Helper()
	validity := x509.Certificate{NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	dir, server := t.TempDir(), validity
	ca := certstest.NewAuthorityFrom(t, validity)
	server.DNSNames = []string{"relay"}
	cert, key := ca.Issue(t, server)
	certstest.InPlace(t, dir, map[string][]byte{"relay.crt": cert, "relay.key": key, "ca.crt": ca.PEM, "snapshot.key": []byte(strings.Repeat("k", 32))})
	in := func(name string) string { return filepath.Join(dir, name) }
	p := &papers{
		files:   config.ServerTLS{Cert: in("relay.crt"), Key: in("relay.key"), ClientCA: in("ca.crt")},
		keyFile: in("snapshot.key"), pool: ca.Pool(),
	}
	for _, identity := range identities {
		var pairs []tls.Certificate
		for id := range perGroup {
			pair, err := tls.X509KeyPair(ca.Issue(t, passport(validity, identity, id)))
			if err != nil {
				t.Fatal(err)
			}
			pairs = append(pairs, pair)
		}
		p.clients = append(p.clients, pairs)
	}
	return p
}

// passport describes the certificate of a client. What does not count in it is as in those of
// other groups.
func passport(c x509.Certificate, identity string, id int) x509.Certificate {
	c.Subject = pkix.Name{CommonName: fmt.Sprint("client ", id)}
	c.DNSNames = []string{"twin.test"}
	if !strings.HasPrefix(identity, "dns:") {
		uri, _ := url.Parse(identity) // it is one
		c.URIs = []*url.URL{uri}
	}
	return c
}

// drawCompany draws how groups are told apart, and gives some of them secrets to ask for.
func drawCompany(r *rand.Rand, p *papers, scripts []Script) company {
	of := company{key: oneOf(r, byNode, byIdentity)}
	if of.key == byNode {
		return of
	}
	of.papers, of.sealed = p, oneOf(r, true, false)
	of.only = oneOf(r, "", "", "", secrets, secrets, oneOf(r, plain...).name)
	for i := range scripts {
		from := oneOf(r, "", "EDS", "FOO") // what is played as secrets
		for n := range scripts[i].Ops {
			switch o := &scripts[i].Ops[n]; {
			case o.Kind == "":
			case of.only != "":
				o.Kind = of.only
			case o.Kind == from:
				o.Kind = secrets
			}
		}
	}
	// The relay ends, so that what is on disk is found by whom it belongs to, and by nobody else.
	last := &scripts[0].Ops
	*last = slices.Insert(*last, len(*last)-r.IntN(len(*last)/2+1), Op{Verb: "restart", N: r.IntN(2)})
	return of
}

func (of company) String() string {
	if of.key == "" {
		return ""
	}
	return fmt.Sprintf(", told apart by %s, only %q, sealed %v", of.key, of.only, of.sealed)
}

// credentials are those of a client. When it comes back it goes on with its TLS session, if the
// relay has it still.
func (r *liveRelay) credentials(id int) credentials.TransportCredentials {
	if r.company.key != byIdentity {
		return insecure.NewCredentials()
	}
	if r.tickets[id] == nil {
		r.tickets[id] = tls.NewLRUClientSessionCache(0)
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: r.company.papers.pool,
		Certificates: []tls.Certificate{r.company.papers.clients[r.group][id]}, ClientSessionCache: r.tickets[id],
	})
}

// other is the identity of another group.
func (r *liveRelay) other(id int) string {
	n := len(r.relays)
	return identities[(r.group+1+id%(n-1))%n]
}

// lie has a client's node say that it is of another group.
func (r *liveRelay) lie(id int, node *core.Node) {
	other := r.other(id)
	node.Cluster, node.Locality = other, &core.Locality{Region: other}
	node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{byIdentity: structpb.NewStringValue(other), config.ClientIdentity: structpb.NewStringValue(other)}}
}

// pretend has it say so in headers, as a proxy would of the clients behind it.
func (r *liveRelay) pretend(ctx context.Context, id int) context.Context {
	if r.company.key != byIdentity {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "x-forwarded-client-cert", "URI="+r.other(id))
}
