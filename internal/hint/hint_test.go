package hint

import (
	"testing"
	"time"
)

func TestExplain(t *testing.T) {
	plain := func() *ControlPlane {
		return &ControlPlane{Name: "cp:1", Section: "upstream.fallbacks[0]", Within: 10 * time.Second}
	}
	secured := func(certificate, asked bool) *ControlPlane {
		c := plain()
		c.TLS = &TLS{Certificate: certificate}
		c.TLS.Asked.Store(asked)
		return c
	}
	spiffe := func() *ControlPlane {
		c := secured(true, true)
		c.TLS.SPIFFE = true
		return c
	}
	const hangsUp = "connection error: desc = \"error reading server preface: EOF\""
	for _, tt := range []struct {
		name    string
		to      *ControlPlane
		failed  string
		reached bool
		want    string
	}{
		{"refused", plain(), "dial tcp: connect: connection refused", false,
			"cp:1 refuses connections: see whether the control plane runs, and whether upstream.fallbacks[0].address has its port for xDS"},
		{"refused, and there was a stream before", plain(), "dial tcp: connect: connection refused", true,
			"cp:1 refuses connections, and did not before: see whether the control plane runs"},
		{"hung up on, and there was a stream before", plain(), hangsUp, true,
			"cp:1 hangs up at once, and did not before: see whether the control plane runs behind what listens there, and whether that still speaks plaintext"},
		{"hung up on with TLS, and there was a stream before", secured(true, true), hangsUp, true,
			"cp:1 hangs up at once, and did not before: see whether the control plane runs behind what listens there, and whether that still accepts what upstream.fallbacks[0].tls says"},
		{"another authority, and there was a stream before", secured(true, true), "tls: failed to verify certificate: x509: certificate signed by unknown authority", true,
			"cp:1 has a certificate from an authority that is not trusted: set upstream.fallbacks[0].tls.ca to a file with the authority that signed it"},
		{"plaintext to TLS", plain(), hangsUp, false,
			"cp:1 does not answer in plaintext: if it speaks TLS, set upstream.fallbacks[0].tls.ca, or upstream.fallbacks[0].tls.server_name for the system's roots"},
		{"mute", plain(), "error reading server preface: read: use of closed network connection", true,
			"cp:1 accepts connections and sends nothing within 10s: it hangs, or upstream.fallbacks[0].address is not its port for gRPC"},
		{"no certificate, and the server asked for one", secured(false, true), hangsUp, false,
			"cp:1 wants a client certificate: set upstream.fallbacks[0].tls.cert and upstream.fallbacks[0].tls.key"},
		{"a certificate, and the server asked for one", secured(true, true), hangsUp, false,
			"cp:1 does not accept the client certificate: set upstream.fallbacks[0].tls.cert and upstream.fallbacks[0].tls.key to one that is valid and that it trusts"},
		{"nobody asked for a certificate", secured(false, false), hangsUp, false,
			"cp:1 does not speak HTTP/2 there: set upstream.fallbacks[0].address to its port for gRPC"},
		{"another name", secured(false, false), "tls: failed to verify certificate: x509: certificate is valid for a, not b", false,
			"cp:1 has no certificate for the name that the relay expects: set upstream.fallbacks[0].tls.server_name to one that is in its certificate"},
		{"no SVID yet", spiffe(), "upstream.tls.spiffe.workload_api: the agent at unix:///a has sent no certificate yet", false,
			"cp:1 is not connected to yet, since the relay has no certificate: see whether the agent of upstream.fallbacks[0].tls.spiffe.workload_api runs, and has an entry for the relay"},
		{"an SVID that the server refuses", spiffe(), hangsUp, false,
			"cp:1 does not accept the relay's SVID: see whether it trusts that trust domain, and lets this SPIFFE ID in"},
		{"nothing to say", secured(false, false), "something new", false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.to.Explain(tt.failed, tt.reached); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
