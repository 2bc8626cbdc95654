package envoygateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"math/big"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

const (
	namespace  = "default"
	controller = "gateway.envoyproxy.io/gatewayclass-controller"
)

// world is what Envoy Gateway is to know: a Gateway with a listener a port, and what
// is behind them.
type world struct {
	// gateways by name: the port of its HTTP listener.
	gateways map[string]int
	// secure is the port of an HTTPS listener of the Gateway eg, if it has one, and
	// pair its certificate.
	secure int
	pair   pair
	routes []route
	proxy  object // further fields of the EnvoyProxy
	// backends by name: where they are.
	backends map[string]string
}

// route is an HTTPRoute of one rule.
type route struct {
	name, gateway string
	prefix        string // of the path
	to            string // a backend
}

// newWorld has Gateways of these names, each with a route to a backend that answers
// with the Gateway's name.
func newWorld(t testing.TB, gateways ...string) *world {
	w := &world{gateways: make(map[string]int), backends: make(map[string]string)}
	for _, name := range gateways {
		w.gateways[name] = freePort(t)
		w.backends[name] = realenvoy.Backend(t, name)
		w.routes = append(w.routes, route{name: name, gateway: name, prefix: "/", to: name})
	}
	return w
}

// Address is where an Envoy listens for a Gateway.
func (w *world) Address(gateway string) string { return peer.Local(w.gateways[gateway]) }

// freePort is a port that nobody has, above those that Envoy Gateway moves elsewhere.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// resources are the world as Envoy Gateway's file provider reads it.
func (w *world) resources() (all []any) {
	const gateway, envoy = "gateway.networking.k8s.io/v1", "gateway.envoyproxy.io/v1alpha1"
	add := func(version, kind, name string, more object) {
		metadata := object{"name": name}
		if kind != "GatewayClass" && kind != "Namespace" {
			metadata["namespace"] = namespace
		}
		o := object{"apiVersion": version, "kind": kind, "metadata": metadata}
		maps.Copy(o, more)
		all = append(all, o)
	}
	add("v1", "Namespace", namespace, nil)
	add(gateway, "GatewayClass", "eg", object{"spec": object{"controllerName": controller, "parametersRef": object{
		"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": "eg", "namespace": namespace,
	}}})
	proxy := object{"provider": object{"type": "Host", "host": object{"envoyVersion": realenvoy.Version}}}
	maps.Copy(proxy, w.proxy)
	add(envoy, "EnvoyProxy", "eg", object{"spec": proxy})
	for _, name := range slices.Sorted(maps.Keys(w.gateways)) {
		listeners := []any{object{"name": "http", "protocol": "HTTP", "port": w.gateways[name]}}
		if name == "eg" && w.secure != 0 {
			listeners = append(listeners, object{"name": "https", "protocol": "HTTPS", "port": w.secure, "tls": object{
				"mode": "Terminate", "certificateRefs": []any{object{"kind": "Secret", "name": "served"}},
			}})
			add("v1", "Secret", "served", object{"type": "kubernetes.io/tls", "data": object{"tls.crt": w.pair.cert, "tls.key": w.pair.key}})
		}
		add(gateway, "Gateway", name, object{"spec": object{"gatewayClassName": "eg", "listeners": listeners}})
	}
	for _, r := range w.routes {
		rule := object{
			"matches":     []any{object{"path": object{"type": "PathPrefix", "value": r.prefix}}},
			"backendRefs": []any{object{"group": "gateway.envoyproxy.io", "kind": "Backend", "name": r.to}},
		}
		add(gateway, "HTTPRoute", r.name, object{"spec": object{
			"parentRefs": []any{object{"name": r.gateway}}, "rules": []any{rule},
		}})
	}
	for _, name := range slices.Sorted(maps.Keys(w.backends)) {
		host, port, _ := net.SplitHostPort(w.backends[name])
		number, _ := strconv.Atoi(port)
		add(envoy, "Backend", name, object{"spec": object{"endpoints": []any{object{"ip": object{"address": host, "port": number}}}}})
	}
	return all
}

// pair is a certificate and its key, in PEM.
type pair struct {
	cert, key []byte
	serial    string
}

// newPair is a server certificate that signs itself.
func newPair(t testing.TB) pair {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must(err)
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "served"}, DNSNames: []string{"served"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	return pair{
		cert:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:    pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		serial: serial.String(),
	}
}
