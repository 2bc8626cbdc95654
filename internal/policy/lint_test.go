package policy_test

import (
	"strings"
	"testing"
)

// TestLint: what may not be meant, and nothing of rules in which all is.
func TestLint(t *testing.T) {
	const mtls, unix = "downstream.tls={cert: a, key: b, client_ca: c}", "downstream.listen=['unix:///run/x.sock']"
	for name, tt := range map[string]struct {
		rules string
		set   []string
		want  string // lines
	}{
		"nothing": {`
  - {identity: "spiffe://td/{a}", node: {id: "{a}"}, read: [{types: [CDS], names: ["{a}/**"]}]}
  - {identity: "spiffe://td/mesh", node: {id: mesh}, read: [{types: [CDS], names: ["mesh/**"]}]}`, []string{mtls}, ""},
		"nobody proves who it is": {`
  - {identity: "spiffe://td/a", node: {id: x}, read: [{types: [CDS], names: [a]}]}
  - {identity: "dns:a.b", node: {id: x}, read: [{types: [CDS], names: [b]}]}
  - {identity: anonymous, node: {id: x}, read: [{types: [CDS], names: [c]}]}`, nil,
			`rules.yaml:2: never matches: no client proves who it is without downstream.tls.client_ca or downstream.tls.spiffe
rules.yaml:3: never matches: no client proves who it is without downstream.tls.client_ca or downstream.tls.spiffe`},
		"everybody proves it": {`
  - {identity: "unix:uid=7", node: {id: x}, read: [{types: [CDS], names: [a]}]}
  - {identity: anonymous, node: {id: x}, read: [{types: [CDS], names: [c]}]}`, []string{mtls, unix},
			`rules.yaml:2: never matches: every client has to show a certificate (downstream.tls), and is known by that
rules.yaml:3: never matches: every client has to show a certificate (downstream.tls), and is known by that`},
		"no Unix socket": {`
  - {identity: "unix:uid=7", node: {id: x}, read: [{types: [CDS], names: [a]}]}`, nil, `rules.yaml:2: never matches: downstream.listen has no Unix socket
every rule allows "a" of CDS: whoever may connect can read that`},
		"a Unix socket": {`
  - {identity: "unix:uid=7", node: {id: x}, read: [{types: [CDS], names: [a]}]}
  - {identity: "unix:uid=8", node: {id: x}, read: [{types: [CDS], names: [b]}]}`, []string{unix}, ""},
		"twice": {`
  - {identity: anonymous, node: {id: x}, read: [{types: [CDS], names: [a, "*"]}]}
  - {identity: anonymous, node: {id: x}, read: [{types: [CDS], names: [a]}, {types: [CDS], names: ["*"]}]}
  - {identity: anonymous, node: {id: y}, read: [{types: [CDS], names: [b]}]}`, nil,
			"rules.yaml:3: has no effect: rules.yaml:2 allows the same, or more, to the same clients"},
		"by a wider one that follows": {`
  - {identity: anonymous, node: {id: x}, read: [{types: [CDS], names: [a, "b/*"]}]}
  - {identity: anonymous, node: {id: x}, read: [{types: [CDS, EDS], names: ["**"]}]}`, nil,
			"rules.yaml:2: has no effect: rules.yaml:3 allows the same, or more, to the same clients"},
		"collections and the wildcard are no names": {`
  - {identity: anonymous, node: {id: x}, read: [{types: [CDS], names: ["*"]}]}
  - {identity: anonymous, node: {id: x}, read: [{types: [CDS], names: ["xdstp://a/T/x/*"]}]}
  - {identity: anonymous, node: {id: x}, read: [{types: [CDS], names: ["**"]}]}`, nil, ""},
		"one that forbids sharing": {`
  - {identity: anonymous, node: {id: x}, read: [{types: [SDS], names: [a], share: true}]}
  - {identity: anonymous, node: {id: x}, read: [{types: [SDS], names: [a]}]}
  - {identity: anonymous, node: {id: y}, read: [{types: [CDS], names: [b]}]}`, nil,
			"rules.yaml:2: has no effect: rules.yaml:3 allows the same, or more, to the same clients"},
		"fields that are left free": {`
  - {identity: anonymous, node: {id: "**", metadata.a: x}, read: [{types: [CDS], names: [a]}]}
  - {identity: anonymous, node: {id: "x", metadata.b: "*"}, read: [{types: [CDS], names: [b]}]}`, []string{"groups.key=[id]"},
			`rules.yaml:2: its clients may say what they like in the node's id, metadata.b
rules.yaml:3: its clients may say what they like in the node's metadata.a`},
		"what everybody may read, and nothing": {`
  - {identity: anonymous, node: {id: x}, read: [{types: [CDS, EDS], names: ["*", "**", a]}]}
  - {identity: anonymous, node: {id: y}, read: [{types: [CDS, EDS, RDS], names: ["**", "*", b]}]}`, nil,
			`every rule allows "*", "**" of CDS, EDS: whoever may connect can read that`},
		"a rule without read, and notes": {`
  - {identity: anonymous}`, nil, `rules.yaml:2: reads nothing: its clients may connect, and are refused every type
no rule of authz.rules_file reads LDS or CDS, so that no Envoy gets a configuration; with a file every type needs a rule`},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(parse(t, "rules:"+tt.rules, tt.set...).Lint(), "\n")
			if got != tt.want {
				t.Errorf("it says\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}
