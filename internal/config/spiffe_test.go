package config

import (
	"strings"
	"testing"
)

// What is said of sections whose certificates come from an agent, and what they stand for.
func TestSPIFFE(t *testing.T) {
	const sound = "workload_api: unix:///run/agent.sock, trust_domains: [one.test, two.test]"
	for name, tt := range map[string]struct {
		file string
		want []string // of each mistake the key and a part of what is said; none: it is valid
	}{
		"downstream":               {"downstream: {listen: [':1'], tls: {spiffe: {" + sound + "}}, relays: ['spiffe://one.test/relay']}\ngroups: {key: [identity]}", nil},
		"upstream":                 {"upstream: {address: 'a:1', tls: {spiffe: {" + sound + ", server_id: 'spiffe://two.test/ns/a/sa/b'}, alpn: lenient}}", nil},
		"a fallback":               {"upstream: {fallbacks: [{address: 'a:1', tls: {spiffe: {" + sound + "}}}]}", nil},
		"files beside it":          {"downstream: {tls: {cert: a, key: b, client_ca: c, spiffe: {" + sound + "}}}", []string{"downstream.tls.cert: has no use beside downstream.tls.spiffe", "downstream.tls.key: has no use", "downstream.tls.client_ca: has no use"}},
		"an authority beside it":   {"downstream: {tls: {client_ca: c, spiffe: {" + sound + "}}}", []string{"downstream.tls.client_ca: has no use"}},
		"files beside it upstream": {"upstream: {tls: {ca: a, cert: b, key: c, server_name: d, spiffe: {" + sound + "}}}", []string{"upstream.tls.ca: has no use beside upstream.tls.spiffe", "upstream.tls.cert: has no use", "upstream.tls.key: has no use", "upstream.tls.server_name: has no use"}},
		"no socket":                {"downstream: {tls: {spiffe: {trust_domains: [one.test]}}}", []string{"downstream.tls.spiffe.workload_api: is missing"}},
		"no path":                  {"downstream: {tls: {spiffe: {workload_api: 'unix:agent.sock', trust_domains: [one.test]}}}", []string{"downstream.tls.spiffe.workload_api: \"unix:agent.sock\" is not the path of a socket"}},
		"TCP":                      {"downstream: {tls: {spiffe: {workload_api: 'tcp://127.0.0.1:1', trust_domains: [one.test]}}}", []string{"downstream.tls.spiffe.workload_api: \"tcp://127.0.0.1:1\" is not the path of a socket"}},
		"another form":             {"downstream: {tls: {spiffe: {workload_api: 'unix-abstract:agent', trust_domains: [one.test]}}}", []string{"is not the path of a socket; write unix:///path"}},
		"no trust domain":          {"downstream: {tls: {spiffe: {workload_api: 'unix:///a', trust_domains: []}}}", []string{"downstream.tls.spiffe.trust_domains: needs at least one"}},
		"wrong trust domains":      {"downstream: {tls: {spiffe: {workload_api: 'unix:///a', trust_domains: ['spiffe://one.test', One.test, one.test, one.test, '']}}}", []string{"trust_domains[0]: \"spiffe://one.test\" is no trust domain", "trust_domains[1]: \"One.test\" is no", "trust_domains[3]: \"one.test\" is listed twice", "trust_domains[4]: \"\" is no"}},
		"a server and nothing else": {"upstream: {fallbacks: [{address: 'a:1', tls: {spiffe: {server_id: 'spiffe://one.test/a'}}}]}", []string{
			"upstream.fallbacks[0].tls.spiffe.workload_api: is missing", "upstream.fallbacks[0].tls.spiffe.trust_domains: needs", "upstream.fallbacks[0].tls.spiffe.server_id: \"spiffe://one.test/a\" is of none of"}},
		"a server that is no SPIFFE ID": {"upstream: {tls: {spiffe: {" + sound + ", server_id: one.test/a}}}", []string{"upstream.tls.spiffe.server_id: \"one.test/a\" is no SPIFFE ID"}},
		"insecure beside it":            {"downstream: {insecure: true, tls: {spiffe: {" + sound + "}}}", []string{"downstream.insecure: only permits plaintext"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("relay.yaml", []byte(tt.file), nil)
			all := All(err)
			if len(all) != len(tt.want) {
				t.Fatalf("%d mistakes, want %d:\n%v", len(all), len(tt.want), err)
			}
			for i, want := range tt.want {
				if got := all[i].Key + ": " + all[i].Msg; !strings.Contains(got, want) {
					t.Errorf("mistake %d is %q, want %q", i, got, want)
				}
			}
		})
	}
}
