package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// ServerSPIFFE takes the relay's certificate, its key and the authorities of clients from
// the agent of a SPIFFE Workload API, such as SPIRE's, instead of files: cert, key and
// client_ca stay empty. All fields empty means files. Each client must have an X509-SVID,
// signed by an authority of its own trust domain, and its identity is the SPIFFE ID in it.
// What the agent sends is used for new connections at once, and is never written to disk.
// While the agent is away, what it sent last stays in use until it expires. Until its first
// answer no client can connect, and the relay is not ready (ERR-14).
type ServerSPIFFE struct {
	// WorkloadAPI is the agent's socket: unix:///path. If the agent has several
	// SVIDs for the relay, its first is used.
	// Default: "".
	WorkloadAPI string `yaml:"workload_api"`

	// TrustDomains lists the trust domains whose clients may connect, such as
	// example.org; at least one. The agent must have the bundle of each: its own
	// trust domain's, and those of trust domains with which that federates.
	// Default: [].
	TrustDomains []string `yaml:"trust_domains"`
}

// Enabled reports whether certificates come from an agent.
func (s ServerSPIFFE) Enabled() bool { return s.WorkloadAPI != "" || len(s.TrustDomains) > 0 }

// ClientSPIFFE takes the relay's certificate, its key and the authorities of the control
// plane from the agent of a SPIFFE Workload API, as downstream.tls.spiffe does: ca, cert,
// key and server_name stay empty. The server is known by its SPIFFE ID, and its host's name
// does not matter. Until the agent's first answer there is no connection.
type ClientSPIFFE struct {
	// WorkloadAPI is the agent's socket, as in downstream.tls.spiffe.
	// Default: "".
	WorkloadAPI string `yaml:"workload_api"`

	// TrustDomains lists the trust domains of which the server may be; at least one.
	// Default: [].
	TrustDomains []string `yaml:"trust_domains"`

	// ServerID is the only SPIFFE ID that the server may have, such as
	// spiffe://example.org/ns/istio-system/sa/istiod. Empty means any of
	// TrustDomains: whoever has an SVID of these can then pose as the control plane.
	// Default: "".
	ServerID string `yaml:"server_id"`
}

// Enabled reports whether certificates come from an agent.
func (s ClientSPIFFE) Enabled() bool {
	return s.WorkloadAPI != "" || len(s.TrustDomains) > 0 || s.ServerID != ""
}

// beside is a key of a section that has no meaning where an agent gives the certificates.
type beside struct{ key, value string }

func (v *validator) serverSPIFFE(section string, t ServerTLS) {
	if t.SPIFFE.Enabled() {
		v.agent(section, t.SPIFFE.WorkloadAPI, t.SPIFFE.TrustDomains, beside{"cert", t.Cert}, beside{"key", t.Key}, beside{"client_ca", t.ClientCA})
	}
}

func (v *validator) clientSPIFFE(section string, t ClientTLS) {
	s := t.SPIFFE
	if !s.Enabled() {
		return
	}
	v.agent(section, s.WorkloadAPI, s.TrustDomains, beside{"ca", t.CA}, beside{"cert", t.Cert}, beside{"key", t.Key}, beside{"server_name", t.ServerName})
	if s.ServerID == "" {
		return
	}
	key := section + ".spiffe.server_id"
	id, err := spiffeid.FromString(s.ServerID)
	switch {
	case err != nil:
		v.fail(key, "for example spiffe://example.org/ns/istio-system/sa/istiod", "%q is no SPIFFE ID: %v", clip(s.ServerID), err)
	case !slices.Contains(s.TrustDomains, id.TrustDomain().Name()):
		v.fail(key, "add its trust domain there", "%q is of none of %s.spiffe.trust_domains", clip(s.ServerID), section)
	}
}

// agent checks where certificates come from, of whom peers are, and that nothing else says so.
func (v *validator) agent(section, socket string, domains []string, others ...beside) {
	at := section + ".spiffe"
	for _, o := range others {
		if o.value != "" {
			v.fail(section+"."+o.key, "remove one of the two", "has no use beside %s: the agent gives certificate, key and authorities, and peers are known by their SPIFFE IDs", at)
		}
	}
	if _, ok, err := unixPath(socket); socket == "" {
		v.fail(at+".workload_api", "for example unix:///run/spire/sockets/agent.sock", "is missing")
	} else if err != nil || !ok || !strings.HasPrefix(socket, "unix:///") {
		v.fail(at+".workload_api", "", "%q is not the path of a socket; write unix:///path", clip(socket))
	}
	if len(domains) == 0 {
		v.fail(at+".trust_domains", "for example [example.org]", "needs at least one trust domain, of which peers are")
	}
	for i, name := range domains {
		td, err := spiffeid.TrustDomainFromString(name)
		switch {
		case err != nil || td.Name() != name:
			v.fail(fmt.Sprintf("%s.trust_domains[%d]", at, i), "write its name alone, for example example.org", "%q is no trust domain", clip(name))
		case slices.Contains(domains[:i], name):
			v.fail(fmt.Sprintf("%s.trust_domains[%d]", at, i), "", "%q is listed twice", clip(name))
		}
	}
}
