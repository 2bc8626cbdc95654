package consul

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// management is the token that may do anything.
const management = "5f9c2d58-7c5e-4d0a-9a52-3f3b8a2f8d11"

// newToken makes a token of a service: it may be that service, and nothing else.
func (m *mesh) newToken(service string) string {
	m.t.Helper()
	var made struct{ SecretID string }
	if err := m.try("PUT", "/v1/acl/token", settings{"ServiceIdentities": []settings{{"ServiceName": service}}}, &made); err != nil {
		m.t.Fatal(err)
	}
	return made.SecretID
}

// TestACLs: with ACLs on, each Envoy's token goes up with its own stream. Who shows
// another's node id and its own token, or none, gets nothing of the other's, and disturbs
// nobody (NODE-13).
func TestACLs(t *testing.T) {
	m := startMesh(t, withACLs(management))
	tokens := map[string]string{"web": m.newToken("web"), "api": m.newToken("api")}
	tapped := startTap(t, m.grpc, 0)
	r := startRelay(t, tapped.Addr)

	web, api := m.envoy("web", tokens["web"], r.Addr), m.envoy("api", tokens["api"], r.Addr)
	web.WaitReady(patience)
	api.WaitReady(patience)
	m.answers("api")
	load := m.load()

	for claim, token := range map[string]string{
		"another's token": tokens["api"], "no token": "", "a token that does not exist": "0d0c8a3e-93a5-44e7-8a7b-0b7f5d7a4a10",
	} {
		thief := startProbe(t, r.Addr, webNode, token)
		thief.Says(subscribe("CDS"), subscribe("LDS"))
		heard := thief.Listens(12 * time.Second)
		t.Logf("%s with web's node id: %q", claim, heard)
		if len(heard) == 0 || !strings.HasPrefix(heard[len(heard)-1], "end: ") {
			t.Errorf("%s with web's node id: nobody says that it is refused", claim)
		}
		for _, resp := range thief.Got {
			if len(resp.GetResources()) > 0 {
				t.Errorf("%s with web's node id gets %s", claim, thief.Words(resp))
			}
		}
	}
	b := bootstrapOf(t, m, "web", tokens["api"], r.Addr)
	thief := realenvoy.Start(t, b, realenvoy.Options{Name: "thief"})
	peer.Wait(10 * time.Second)
	if d := dump(t, thief); len(d.Clusters)+len(d.Listeners)+len(d.Routes)+len(d.Endpoints) > 0 {
		t.Errorf("an Envoy with web's node id and api's token has clusters %v, listeners %v", names(d.Clusters), names(d.Listeners))
	}

	quiet(t, load, web)
	said := strings.Join(r.Output.Lines(), "\n")
	for name, token := range tokens {
		if strings.Contains(said, token) {
			t.Errorf("the relay's log has the token of %s in it", name)
		}
	}
	for line := range strings.Lines(said) {
		if strings.Contains(line, `"warn"`) || strings.Contains(line, `"WARN"`) {
			t.Logf("the relay says: %s", line)
		}
	}
	for _, page := range []string{"/groups", "/clients", "/metrics", "/resources"} {
		text, err := r.Page(page)
		if err != nil {
			t.Error(err)
		}
		for name, token := range tokens {
			if strings.Contains(text, token) {
				t.Errorf("%s has the token of %s in it", page, name)
			}
		}
	}

	// After a restart of both the tokens are still needed, and still work.
	r.Kill()
	m.Kill()
	m.Start()
	r.Start()
	m.addNative("v1")
	m.split("v1")
	m.answers("v1")
}

// TestTLS: Consul's TLS port, which selects no ALPN, with certificates either way.
func TestTLS(t *testing.T) {
	pki := newPKI(t)
	m := startMesh(t, settings{"tls": settings{"grpc": settings{
		"ca_file": pki.ca, "cert_file": pki.serverCert, "key_file": pki.serverKey, "verify_incoming": true,
	}}})
	strict := []string{
		"upstream.tls.ca=" + pki.ca, "upstream.tls.cert=" + pki.clientCert, "upstream.tls.key=" + pki.clientKey,
		"upstream.tls.server_name=server.dc1.consul",
	}
	refused := startRelay(t, m.grpcTLS, strict...)
	p := startProbe(t, refused.Addr, webNode, "")
	p.Says(subscribe("CDS"))
	eventually(t, func() error { return says(refused, "upstream.tls.alpn") })
	refused.Kill()

	r := startRelay(t, m.grpcTLS, append(slices.Clone(strict), "upstream.tls.alpn=lenient")...)
	web, _ := m.sidecars(r.Addr)
	load := m.load()
	m.addNative("v1")
	m.split("v1")
	m.answers("v1")
	quiet(t, load, web)
}
