package certstest

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// SVID is an X509-SVID, in PEM form, for the SPIFFE ID and by the authority that it names.
// Nothing keeps an authority from signing for a trust domain that is not its own.
type SVID struct {
	ID        string
	Cert, Key []byte
}

// IssueSVID makes one. What the description leaves zero is filled in.
func (a *Authority) IssueSVID(t testing.TB, id string, c x509.Certificate) SVID {
	t.Helper()
	u, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	c.URIs, c.KeyUsage, c.DNSNames = []*url.URL{u}, x509.KeyUsageDigitalSignature, []string{"nobody.looks.at.it"}
	cert, key := a.Issue(t, c)
	return SVID{id, cert, key}
}

// Agent is a SPIFFE Workload API at a Unix socket, which gives the same to everybody. It
// does not run until Start.
type Agent struct {
	path   string
	server *grpc.Server
	work   sync.WaitGroup

	mu      sync.Mutex
	gives   *workload.X509SVIDResponse // nil: it has no identity for anybody
	refuses error                      // instead
	changed chan struct{}              // closed and replaced when that is another
	streams int
	asked   int
}

// NewAgent returns one that has no identity for anybody yet.
func NewAgent(t testing.TB, dir string) *Agent {
	t.Helper()
	a := &Agent{path: filepath.Join(dir, "agent.sock"), changed: make(chan struct{})}
	t.Cleanup(a.Stop)
	return a
}

// Address is what workload_api is set to.
func (a *Agent) Address() string { return "unix://" + a.path }

// Start listens and serves.
func (a *Agent) Start(t testing.TB) {
	t.Helper()
	l, err := net.Listen("unix", a.path)
	if err != nil {
		t.Fatal(err)
	}
	a.server = grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(a.server, served{agent: a})
	a.work.Go(func() { _ = a.server.Serve(l) }) // it ends with Stop
}

// Stop ends it and all its streams; it can be started again.
func (a *Agent) Stop() {
	if a.server != nil {
		a.server.Stop()
		a.work.Wait()
		a.server = nil
	}
}

// Give sends an SVID from now on, to who listens, too, with the authorities of its own trust
// domain and those of others, by name.
func (a *Agent) Give(svid SVID, bundle []*Authority, federated map[string][]*Authority) {
	r := &workload.X509SVIDResponse{
		Svids:            []*workload.X509SVID{{SpiffeId: svid.ID, X509Svid: der(svid.Cert), X509SvidKey: der(svid.Key), Bundle: raw(bundle)}},
		FederatedBundles: make(map[string][]byte),
	}
	for name, authorities := range federated {
		r.FederatedBundles["spiffe://"+name] = raw(authorities)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gives, a.refuses = r, nil
	close(a.changed)
	a.changed = make(chan struct{})
}

// Refuse refuses whoever asks, from now on, until Give.
func (a *Agent) Refuse(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuses = err
	close(a.changed)
	a.changed = make(chan struct{})
}

// Streams is how many listen.
func (a *Agent) Streams() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.streams
}

// Asked is how many have listened, and been refused.
func (a *Agent) Asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// raw is a bundle as the Workload API has it.
func raw(authorities []*Authority) (bundle []byte) {
	for _, a := range authorities {
		bundle = append(bundle, a.Cert.Raw...)
	}
	return bundle
}

// der is what a PEM block holds.
func der(text []byte) []byte {
	block, _ := pem.Decode(text)
	return block.Bytes
}

func (a *Agent) count(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams += n
	a.asked += max(n, 0)
}

// served is an agent as the Workload API sees it.
type served struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	agent *Agent
}

// FetchX509SVID implements the Workload API.
func (s served) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	if md, _ := metadata.FromIncomingContext(stream.Context()); len(md.Get("workload.spiffe.io")) == 0 {
		return status.Error(codes.InvalidArgument, "security header missing from request")
	}
	s.agent.count(1)
	defer s.agent.count(-1)
	for {
		s.agent.mu.Lock()
		gives, refuses, changed := s.agent.gives, s.agent.refuses, s.agent.changed
		s.agent.mu.Unlock()
		switch {
		case refuses != nil:
			return refuses
		case gives == nil:
			return status.Error(codes.PermissionDenied, "no identity issued")
		}
		if err := stream.Send(gives); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return errors.New("the stream has ended")
		}
	}
}
