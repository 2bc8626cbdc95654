package consul

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// The mesh: web calls api, through the sidecars of both. The services v1, v2, … take
// part without a sidecar ("Connect-native"): one server has the certificates of all of
// them, and says by the SNI which of them was called.

// fallbackService is where the splitter of api leads at first.
const fallbackService = "api"

// entry writes a configuration entry.
func (s *server) entry(kind, name string, more settings) {
	s.t.Helper()
	e := settings{"Kind": kind, "Name": name}
	for key, value := range more {
		e[key] = value
	}
	s.put("/v1/config", e)
}

// split leads all calls of api to one service.
func (s *server) split(service string) {
	s.t.Helper()
	s.entry("service-splitter", "api", settings{"Splits": []settings{{"Weight": 100, "Service": service}}})
}

// forget deletes one.
func (s *server) forget(kind, name string) {
	s.t.Helper()
	if err := s.try(http.MethodDelete, "/v1/config/"+kind+"/"+name, nil, nil); err != nil {
		s.t.Fatal(err)
	}
}

// mesh is a Consul with web and api registered, and api's splitter.
type mesh struct {
	*server
	web    int            // where the application web calls api
	other  int            // where it calls other, if it does
	apps   map[string]int // where the applications listen
	ports  map[string]int // and their sidecars
	native *natives
}

func startMesh(t testing.TB, more ...settings) *mesh {
	t.Helper()
	m := &mesh{server: startConsul(t, more...), web: peer.Port(t), other: peer.Port(t), apps: make(map[string]int), ports: make(map[string]int)}
	m.entry("proxy-defaults", "global", settings{"Config": settings{"protocol": "http"}})
	m.entry("service-intentions", "*", settings{"Sources": []settings{{"Name": "*", "Action": "allow"}}})
	m.split(fallbackService)
	for _, name := range []string{"web", "api"} {
		m.apps[name], m.ports[name] = portOf(t, realenvoy.Backend(t, name)), peer.Port(t)
	}
	m.register("api", nil)
	m.upstreams(map[string]int{"api": m.web})
	return m
}

// upstreams registers web with these upstreams, each at a local port.
func (m *mesh) upstreams(ports map[string]int) {
	m.t.Helper()
	var ups []settings
	for destination, local := range ports {
		ups = append(ups, settings{"DestinationName": destination, "LocalBindPort": local})
	}
	m.register("web", ups)
}

// register registers a service with its sidecar.
func (m *mesh) register(name string, upstreams []settings) {
	m.t.Helper()
	m.put("/v1/agent/service/register?replace-existing-checks=true", settings{
		"Name": name, "ID": name, "Address": "127.0.0.1", "Port": m.apps[name],
		"Connect": settings{"SidecarService": settings{
			"Port":   m.ports[name],
			"Proxy":  settings{"Upstreams": upstreams},
			"Checks": []settings{{"Name": "its service", "AliasService": name}},
		}},
	})
}

// envoy starts the sidecar of a service from Consul's own bootstrap, with an xDS server
// at an address.
func (m *mesh) envoy(service, token, xds string) *realenvoy.Envoy {
	m.t.Helper()
	return realenvoy.Start(m.t, bootstrapOf(m.t, m, service, token, xds), realenvoy.Options{Name: service, LogLevel: "warning"})
}

func bootstrapOf(t testing.TB, m *mesh, service, token, xds string) realenvoy.Bootstrap {
	t.Helper()
	b := realenvoy.Bootstrap{}
	if err := json.Unmarshal(m.bootstrap(service, token, xds, peer.Address(t)), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// sidecars starts those of web and api, and returns when calls pass through both.
func (m *mesh) sidecars(xds string) (web, api *realenvoy.Envoy) {
	m.t.Helper()
	web, api = m.envoy("web", m.token, xds), m.envoy("api", m.token, xds)
	web.WaitReady(patience)
	api.WaitReady(patience)
	m.answers("api")
	return web, api
}

// answers waits until a call of web is answered by a service.
func (m *mesh) answers(service string) {
	m.t.Helper()
	eventually(m.t, func() error {
		if answer, failure := realenvoy.Get(peer.Local(m.web)); answer != service {
			return fmt.Errorf("web's call of api: %q, %s; it should be answered by %s", answer, failure, service)
		}
		return nil
	})
}

// load calls api as web does, 300 times a second.
func (m *mesh) load() *realenvoy.Load {
	m.t.Helper()
	return realenvoy.Drive(m.t, peer.Local(m.web), perSecond)
}

// perSecond is the load.
const perSecond = 300

// quiet fails the test if one of the load's requests failed.
func quiet(t testing.TB, l *realenvoy.Load, web *realenvoy.Envoy) {
	t.Helper()
	c := l.Stop()
	noCluster, err := web.Sum("no_cluster")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v; no_cluster: %d", c, noCluster)
	if c.Failed() > 0 || noCluster > 0 {
		t.Errorf("%v; no_cluster: %d", c, noCluster)
	}
	if c.Unsent > (c.Sent+c.Unsent)/5 {
		t.Errorf("%d requests could not be sent, %d could: this machine has too much to do for a verdict", c.Unsent, c.Sent)
	}
}

// natives serves Connect-native services, all at one address.
type natives struct {
	m    *mesh
	port int

	mu    sync.Mutex
	certs map[string]*tls.Certificate // by service
}

// addNative registers a service that has no sidecar.
func (m *mesh) addNative(name string) {
	m.t.Helper()
	m.instance(name, name)
}

// instance registers an instance of a service, without a sidecar.
func (m *mesh) instance(name, id string) {
	m.t.Helper()
	if m.native == nil {
		m.native = startNatives(m)
	}
	var leaf struct{ CertPEM, PrivateKeyPEM string }
	m.get("/v1/agent/connect/ca/leaf/"+name, &leaf)
	cert, err := tls.X509KeyPair([]byte(leaf.CertPEM), []byte(leaf.PrivateKeyPEM))
	if err != nil {
		m.t.Fatal(err)
	}
	m.native.mu.Lock()
	m.native.certs[name] = &cert
	m.native.mu.Unlock()
	m.put("/v1/agent/service/register", settings{
		"Name": name, "ID": id, "Address": "127.0.0.1", "Port": m.native.port, "Connect": settings{"Native": true},
	})
}

func startNatives(m *mesh) *natives {
	n := &natives{m: m, certs: make(map[string]*tls.Certificate)}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		ClientAuth:     tls.RequireAnyClientCert,
		GetCertificate: n.certificate,
		NextProtos:     []string{"http/1.1"},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	n.port = portOf(m.t, l.Addr().String())
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, called(r.TLS.ServerName))
	})}
	var work sync.WaitGroup
	work.Go(func() { _ = s.Serve(l) }) // it ends when it is closed
	m.t.Cleanup(func() {
		s.Close()
		work.Wait()
	})
	return n
}

// called is the service that an SNI such as v1.default.dc1.internal.<domain> means.
func called(sni string) string {
	for i, c := range sni {
		if c == '.' {
			return sni[:i]
		}
	}
	return sni
}

func (n *natives) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.certs[called(hello.ServerName)]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no service is called %q here", hello.ServerName)
}
