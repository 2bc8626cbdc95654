package config

import "testing"

func TestNotes(t *testing.T) {
	for _, tt := range []struct {
		name string
		file string
		want string // "" = none
	}{
		{"an empty file", " \n", "relay.yaml: the file sets nothing, so that every key has its default\n" +
			"  hint: write the configuration, or leave -c out if the defaults are meant; a running relay refuses such a file when it reloads"},
		{"a file of comments", "---\n# log: {level: debug}\n", "relay.yaml: the file sets nothing, so that every key has its default\n" +
			"  hint: write the configuration, or leave -c out if the defaults are meant; a running relay refuses such a file when it reloads"},
		{"one node for clusters that are told apart", "groups: {key: [cluster, identity]}\ndownstream: {tls: {cert: a, key: b, client_ca: c}}\nupstream:\n  node_mode: static\n  node: {cluster: eg}\n", lines(
			`relay.yaml:4:14: upstream.node_mode: clients are grouped by cluster, but with node_mode static the control plane sees the same node for all groups (id "xds-relay", cluster "eg"): if its answers depend on the node, every group gets those of that one`,
			`    4 |   node_mode: static`,
			`      |              ^`,
			`  hint: leave upstream.node_mode out, so that each group shows its own; or take these entries out of the keys, if the answers do not depend on them`)},
		{"one node, and a type with a key", "groups: {types: [{type_url: EDS, key: [locality.zone, cluster]}]}\nupstream: {node_mode: static}\n", lines(
			`relay.yaml:2:23: upstream.node_mode: clients are grouped by locality.zone, cluster, but with node_mode static the control plane sees the same node for all groups (id "xds-relay", cluster ""): if its answers depend on the node, every group gets those of that one`,
			`    2 | upstream: {node_mode: static}`,
			`      |                       ^`,
			`  hint: leave upstream.node_mode out, so that each group shows its own; or take these entries out of the keys, if the answers do not depend on them`)},
		{"settings of REST, and nobody is asked over it", "upstream: {rest: {poll: 10s}}\n", lines(
			`relay.yaml:1:25: upstream.rest.poll: has no effect: no control plane is asked over REST`,
			`    1 | upstream: {rest: {poll: 10s}}`,
			`      |                         ^`,
			`  hint: write the address of a control plane that speaks REST as rest+https://host/`)},
		{"TLS without client certificates", "downstream: {listen: ['127.0.0.1:1', ':18000'], tls: {cert: a, key: b}}\n", lines(
			`relay.yaml:1:38: downstream.listen[1]: clients need no certificate: anyone who reaches ":18000" can read what the control plane sends, and ask for more`,
			`    1 | downstream: {listen: ['127.0.0.1:1', ':18000'], tls: {cert: a, key: b}}`,
			`      |                                      ^`,
			`  hint: set downstream.tls.client_ca, so that only clients with a certificate are served`)},
		{"TLS on loopback", "downstream: {listen: ['127.0.0.1:1', 'unix:///a'], tls: {cert: a, key: b}}\n", ""},
		{"TLS with client certificates", "downstream: {listen: [':18000'], tls: {cert: a, key: b, client_ca: c}}\n", ""},
		{"TLS with an agent", "downstream: {listen: [':18000'], tls: {spiffe: {workload_api: 'unix:///a', trust_domains: [b.test]}}}\n", ""},
		{"any server of a trust domain", "upstream:\n  tls:\n    spiffe: {workload_api: 'unix:///a', trust_domains: [b.test]}\n", lines(
			`relay.yaml:3:56: upstream.tls.spiffe.trust_domains: whoever has an SVID of b.test can pose as the control plane`,
			`    3 |     spiffe: {workload_api: 'unix:///a', trust_domains: [b.test]}`,
			`      |                                                        ^`,
			`  hint: set upstream.tls.spiffe.server_id to the SPIFFE ID of the control plane`)},
		{"anybody's secrets", "groups:\n  secrets: identity\ndownstream: {listen: [':18000'], tls: {cert: a, key: b, client_ca: c}}\n", lines(
			`relay.yaml:2:12: groups.secrets: with identity every client that has a certificate is served any Secret that it names, and the control plane sees only the relay`,
			`    2 |   secrets: identity`,
			`      |            ^`,
			`  hint: set it to policy, with rules in authz.rules_file; or set groups.send_identity, if the control plane decides by that`)},
		{"secrets about which the control plane decides", "groups: {secrets: identity, send_identity: true}\ndownstream: {listen: [':18000'], tls: {cert: a, key: b, client_ca: c}}\n", ""},
		{"secrets about which it decides by a header", "groups: {secrets: identity, forward_headers: [authorization]}\ndownstream: {listen: [':18000'], tls: {cert: a, key: b, client_ca: c}}\n", ""},
		{"secrets on this host", "groups: {secrets: identity}\ndownstream: {tls: {cert: a, key: b, client_ca: c}}\n", ""},
		{"a node for each group", "groups: {key: [cluster]}\nupstream: {node: {cluster: eg}}\n", ""},
		{"one node, and no key", "upstream: {node_mode: static, node: {cluster: eg}}\n", ""},
		{"one node, and a key of identities", "groups: {key: [identity, constant.a]}\ndownstream: {tls: {cert: a, key: b, client_ca: c}}\nupstream: {node_mode: static}\n", ""},
		{"a webhook in plaintext", "admin: {webhook: {url: 'http://hooks.example.com/a'}}\n", lines(
			`relay.yaml:1:24: admin.webhook.url: events, with names of clients and resources, and the headers go to hooks.example.com in plaintext`,
			`    1 | admin: {webhook: {url: 'http://hooks.example.com/a'}}`,
			`      |                        ^`,
			`  hint: write https://`)},
		{"a webhook in plaintext on this host", "admin: {webhook: {url: 'http://127.0.0.1:8080/a'}}\n", ""},
		{"an aggregate", "cache: {mass_removal_guard: {fraction: 0.5}}", ""},
		{"a sidecar without the guard", "groups:\n  profile: sidecar\n", lines(
			`relay.yaml:2:12: groups.profile: with profile sidecar and cache.mass_removal_guard off, the proxy loses every resource that a restarting control plane does not show at once`,
			`    2 |   profile: sidecar`,
			`      |            ^`,
			`  hint: set cache.mass_removal_guard to {fraction: 0.01, min: 1, within: 15s, hold: 30s}, or cache.mass_removal_guard.fraction to 0 to do without`)},
		{"a sidecar with the guard for a fleet", "groups: {profile: sidecar}\ncache:\n  mass_removal_guard:\n    fraction: 0.5\n", lines(
			`relay.yaml:4:5: cache.mass_removal_guard: with profile sidecar the guard never acts: a proxy seldom has 20 resources of a type, the default of cache.mass_removal_guard.min`,
			`    4 |     fraction: 0.5`,
			`      |     ^`,
			`  hint: set cache.mass_removal_guard.min to 1, as in {fraction: 0.01, min: 1, within: 15s, hold: 30s}`)},
		{"a sidecar with values of its own", "groups: {profile: sidecar}\ncache: {mass_removal_guard: {fraction: 0.01, min: 1, within: 15s, hold: 30s}}", ""},
		{"a sidecar that does without", "groups: {profile: sidecar}\ncache: {mass_removal_guard: {fraction: 0}}", ""},
		{"a sidecar that means it", "groups: {profile: sidecar}\ncache: {mass_removal_guard: {fraction: 0.5, min: 20}}", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("relay.yaml", []byte(tt.file), nil)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, n := range c.Notes() {
				got += n.Error()
			}
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}
