package authz_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// long asks for the long forms.
func long() bool { return os.Getenv("AUTHZ") == "long" }

// scene is a relay with rules, between a control plane and clients with certificates.
type scene struct {
	t     testing.TB
	plane *plane
	relay *relay.Relay
	addr  string
	ca    *certstest.Authority
	sets  []string
	dir   string
	log   memory
	conns []*grpc.ClientConn
}

// memory keeps what is written to it.
type memory struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (m *memory) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.Write(b)
}

func (m *memory) has(text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Contains(m.text.Bytes(), []byte(text))
}

// quick are settings with which updates go on at once.
var quick = []string{"upstream.coalesce_window=0s", "timers.settle=0s"}

func newScene(t testing.TB, rules string, sets ...string) *scene {
	t.Helper()
	s := &scene{t: t, plane: startPlane(t), ca: certstest.NewAuthority(t, "authz"), dir: t.TempDir()}
	cert, key := s.ca.Issue(t, x509.Certificate{})
	for name, text := range map[string][]byte{"ca.crt": s.ca.PEM, "relay.crt": cert, "relay.key": key} {
		s.write(name, string(text))
	}
	s.write("rules.yaml", rules)
	s.sets = append(append(quick, "upstream.address="+s.plane.addr, "authz.rules_file="+s.path("rules.yaml"),
		"downstream.tls.cert="+s.path("relay.crt"), "downstream.tls.key="+s.path("relay.key"), "downstream.tls.client_ca="+s.path("ca.crt")), sets...)
	t.Cleanup(s.stop)
	s.start()
	return s
}

// start starts the relay.
func (s *scene) start() {
	s.t.Helper()
	c, err := config.Load("", s.sets)
	if err != nil {
		s.t.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if s.relay, err = relay.New(c, relay.Options{Log: log, NoTrials: true}); err != nil {
		s.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = l.Addr().String()
	s.relay.Serve(l)
}

// stop sends all clients away, and ends the relay.
func (s *scene) stop() {
	for _, c := range s.conns {
		c.Close()
	}
	if s.conns = nil; s.relay != nil {
		s.relay.Close(0)
	}
	s.relay = nil
}

func (s *scene) path(name string) string { return filepath.Join(s.dir, name) }

func (s *scene) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// ruled puts other rules in force.
func (s *scene) ruled(rules string) {
	s.write("rules.yaml", rules)
	s.relay.ReadRules()
}

// as connects a client with an identity, which is a URI or dns:NAME. All that it hears goes to a tap, which may be nil.
func (s *scene) as(identity string, tap *memory) *grpc.ClientConn {
	s.t.Helper()
	creds := credentials.NewTLS(s.showing(identity))
	if tap != nil {
		creds = tapped{creds, tap}
	}
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(creds), grpc.WithReadBufferSize(4<<10))
	if err != nil {
		s.t.Fatal(err)
	}
	s.conns = append(s.conns, conn)
	return conn
}

// showing is how a client connects with an identity.
func (s *scene) showing(identity string) *tls.Config {
	s.t.Helper()
	var of x509.Certificate
	if name, is := strings.CutPrefix(identity, "dns:"); is {
		of.DNSNames = []string{name}
	} else {
		u, err := url.Parse(identity)
		if err != nil {
			s.t.Fatal(err)
		}
		of.URIs = []*url.URL{u}
	}
	cert, key := s.ca.Issue(s.t, of)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		s.t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: s.ca.Pool(), MinVersion: tls.VersionTLS13}
}

// tapped are credentials whose connections write down all that they hear, in clear.
type tapped struct {
	credentials.TransportCredentials
	tap *memory
}

func (c tapped) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return tappedConn{conn, c.tap}, info, nil
}

func (c tapped) Clone() credentials.TransportCredentials {
	return tapped{c.TransportCredentials.Clone(), c.tap}
}

type tappedConn struct {
	net.Conn
	tap *memory
}

func (c tappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	_, _ = c.tap.Write(b[:n]) // it cannot fail
	return n, err
}

// nodeOf is what a client says that it is.
func nodeOf(id, namespace string) *core.Node {
	n := &core.Node{Id: id}
	if namespace != "" {
		n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"NAMESPACE": structpb.NewStringValue(namespace)}}
	}
	return n
}

// call is one call of a discovery method.
type call struct {
	t      testing.TB
	method string
	of     cache.TypeURL // that it asks for
	conn   *grpc.ClientConn
	stream grpc.ClientStream // nil: it is unary
	cancel context.CancelFunc

	mu    sync.Mutex
	got   []*answer
	end   error
	ended chan struct{}
	news  chan struct{} // has an element when there is something new
	// What a SotW client asks for, and repeats when it accepts a response; and the nonce and version of the newest one.
	names          map[cache.TypeURL][]string
	nonce, version map[cache.TypeURL]string
}

// answer is a response.
type answer struct {
	t       cache.TypeURL
	texts   map[string]string // of its resources
	aliases map[string][]string
	version map[string]string
	removed []string
	errors  map[string]int32
	message proto.Message
}

func (c *call) is(kind string) bool {
	return strings.HasPrefix(c.method[strings.LastIndexByte(c.method, '/')+1:], kind)
}

// patience is how long a call waits for what has to come.
const patience = 30 * time.Second

// begin calls a method, to ask for a type.
func begin(t testing.TB, conn *grpc.ClientConn, method string, of cache.TypeURL) *call {
	t.Helper()
	c := &call{t: t, method: method, of: of, conn: conn, ended: make(chan struct{}), news: make(chan struct{}, 1)}
	c.names, c.nonce, c.version = make(map[cache.TypeURL][]string), make(map[cache.TypeURL]string), make(map[cache.TypeURL]string)
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	if c.is("Fetch") {
		close(c.ended)
		return c
	}
	var err error
	if c.stream, err = conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/"+method); err != nil {
		t.Fatal(err)
	}
	go c.listen()
	return c
}

// over ends it, and returns when nothing comes any more.
func (c *call) over() {
	c.cancel()
	<-c.ended
}

func (c *call) listen() {
	defer close(c.ended)
	for {
		m := c.empty()
		err := c.stream.RecvMsg(m)
		c.mu.Lock()
		if err != nil {
			c.end = err
		} else {
			c.take(m)
		}
		c.mu.Unlock()
		select {
		case c.news <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (c *call) empty() proto.Message {
	if c.is("Delta") {
		return &discovery.DeltaDiscoveryResponse{}
	}
	return &discovery.DiscoveryResponse{}
}

// take keeps a response, and accepts it. The mutex is held.
func (c *call) take(m proto.Message) {
	a := &answer{texts: make(map[string]string), aliases: make(map[string][]string), version: make(map[string]string), errors: make(map[string]int32), message: m}
	var failed []*discovery.ResourceError
	switch m := m.(type) {
	case *discovery.DeltaDiscoveryResponse:
		a.t, a.removed, failed = cache.TypeURL(m.GetTypeUrl()), m.GetRemovedResources(), m.GetResourceErrors()
		for _, r := range m.GetResources() {
			_, text := nameIn(r.GetResource())
			a.texts[r.GetName()], a.aliases[r.GetName()], a.version[r.GetName()] = text, r.GetAliases(), r.GetVersion()
		}
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()})
	case *discovery.DiscoveryResponse:
		a.t, failed = cache.TypeURL(m.GetTypeUrl()), m.GetResourceErrors()
		for _, r := range m.GetResources() {
			name, text := nameIn(r)
			a.texts[name] = text
		}
		if c.nonce[a.t], c.version[a.t] = m.GetNonce(), m.GetVersionInfo(); c.stream != nil {
			c.send(&discovery.DiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResourceNames: c.names[a.t], ResponseNonce: c.nonce[a.t], VersionInfo: c.version[a.t]})
		}
	}
	for _, e := range failed {
		a.errors[e.GetResourceName().GetName()] = e.GetErrorDetail().GetCode()
	}
	c.got = append(c.got, a)
}

// send sends a request. If the stream is over, listen says so. The mutex is held.
func (c *call) send(m proto.Message) { _ = c.stream.SendMsg(m) }

// asks asks for names; brought are versions that the client comes with, and of a SotW client only that there are some.
func (c *call) asks(node *core.Node, brought map[string]string, names ...string) {
	c.asksFor(c.of, node, brought, names, nil)
}

// asksFor asks for names of a type, and gives others up; a SotW client gives up what it does not repeat.
func (c *call) asksFor(of cache.TypeURL, node *core.Node, brought map[string]string, names, others []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is("Delta") {
		c.send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: string(of), ResourceNamesSubscribe: names, ResourceNamesUnsubscribe: others, InitialResourceVersions: brought})
		return
	}
	c.names[of] = names
	req := &discovery.DiscoveryRequest{Node: node, TypeUrl: string(of), ResourceNames: names, ResponseNonce: c.nonce[of], VersionInfo: c.version[of]}
	for _, version := range brought {
		req.VersionInfo = version
	}
	if c.stream != nil {
		c.send(req)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp := &discovery.DiscoveryResponse{}
	if c.end = c.conn.Invoke(ctx, "/"+c.method, req, resp); c.end == nil {
		c.take(resp)
	}
}

// refuses refuses a response of the type.
func (c *call) refuses(nonce string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(c.of), ResponseNonce: nonce, ErrorDetail: &statuspb.Status{Code: 3, Message: "no"}})
}

// heard is what has come so far, and how it ended.
func (c *call) heard() ([]*answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got, c.end
}

// awaits waits until all of some things have come, or the call has ended.
func (c *call) awaits(what string, all func(all []*answer) bool) error {
	c.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		got, end := c.heard()
		switch {
		case all(got):
			return nil
		case end != nil:
			return end
		case c.stream == nil:
			c.t.Fatalf("%s: %s has not come; there is %s", c.method, what, c)
		}
		select {
		case <-c.news:
		case <-limit.C:
			c.t.Fatalf("%s: %s has not come; there is %s", c.method, what, c)
		}
	}
}

// gets waits for a resource with a text.
func (c *call) gets(name, text string) {
	c.t.Helper()
	if err := c.awaits(name, func(all []*answer) bool { return anyOf(all, func(a *answer) bool { return a.texts[name] == text }) }); err != nil {
		c.t.Fatalf("%s: waiting for %s: %v", c.method, name, err)
	}
}

// denied waits for the errors of names that it may not read.
func (c *call) denied(names ...string) {
	c.t.Helper()
	for _, name := range names {
		const permissionDenied = 7
		if err := c.awaits("the error of "+name, func(all []*answer) bool {
			return anyOf(all, func(a *answer) bool { return a.errors[name] == permissionDenied })
		}); err != nil {
			c.t.Fatalf("%s: waiting for the error of %s: %v", c.method, name, err)
		}
	}
}

func anyOf(all []*answer, is func(*answer) bool) bool {
	for _, a := range all {
		if is(a) {
			return true
		}
	}
	return false
}

func (c *call) String() string {
	got, end := c.heard()
	var b strings.Builder
	for _, a := range got {
		fmt.Fprintf(&b, "%v; ", a.message)
	}
	return fmt.Sprintf("%send %v", &b, end)
}
