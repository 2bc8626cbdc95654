package config

import (
	"math"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name string
		file string
		want string // "" = valid
	}{
		{"upstream in plaintext, loopback", "upstream: {address: \"localhost:1\"}", ""},
		{"upstream in plaintext, IPv6 loopback", "upstream: {address: \"[::1]:1\"}", ""},
		{"upstream in plaintext, dns", "upstream: {address: \"dns:///127.0.0.1:1\"}", ""},
		{"upstream in plaintext, socket", "upstream: {address: \"unix:///run/x.sock\"}", ""},
		{"upstream in plaintext, accepted", "upstream: {address: \"istiod:15010\", insecure: true}", ""},
		{"files, and as a fallback", "upstream: {address: \"files:///etc/xds\", fallbacks: [{address: \"files:///etc/last\"}]}", ""},
		{"files with two slashes", "upstream: {address: \"files://etc/xds\"}", lines(
			`relay.yaml:1:21: upstream.address: "files://etc/xds" is not an absolute path; write three slashes: files:///etc/xds`,
			`    1 | upstream: {address: "files://etc/xds"}`,
			`      |                     ^`)},
		{"files with TLS", "upstream:\n  address: files:///etc/xds\n  tls: {ca: ca.crt}\n", lines(
			`relay.yaml:3:8: upstream.tls: says nothing about "files:///etc/xds"`,
			`    3 |   tls: {ca: ca.crt}`,
			`      |        ^`,
			`  hint: remove it: files are read by the relay itself`)},
		{"a last resort before others", "upstream: {fallbacks: [{address: \"files:///a\"}, {address: \"127.0.0.1:1\"}]}", lines(
			`relay.yaml:1:34: upstream.fallbacks[0].address: "files:///a" is a last resort, and others stand behind it`,
			`    1 | upstream: {fallbacks: [{address: "files:///a"}, {address: "127.0.0.1:1"}]}`,
			`      |                                  ^`,
			`  hint: move it to the end of the list, or set upstream.fallbacks[0].last_resort: false`)},
		{"files that are no last resort", "upstream: {fallbacks: [{address: \"files:///a\", last_resort: false}, {address: \"127.0.0.1:1\"}]}", ""},
		{"over REST", "upstream: {address: \"rest+https://plane.example/base/\", headers: {authorization: {value: x}}, fallbacks: [{address: \"rest+http://127.0.0.1:8080\"}, {address: \"rest+http://plane:1\", insecure: true}, {address: \"rest+https://plane:2\", tls: {ca: ca.crt}}]}", ""},
		{"over REST in plaintext", "upstream: {address: \"rest+http://plane:1/\"}", lines(
			`relay.yaml:1:21: upstream.address: "rest+http://plane:1/" is not on this host and would be spoken to in plaintext`,
			`    1 | upstream: {address: "rest+http://plane:1/"}`,
			`      |                     ^`,
			`  hint: set upstream.tls, or upstream.insecure: true if the network is trusted`)},
		{"over REST with a password", "upstream: {address: \"rest+https://a:secret@plane/\"}", lines(
			`relay.yaml:1:21: upstream.address: the URL has a user or password in it; write rest+https://host:port/, and set headers`,
			`    1 | upstream: {address: "rest+https://a:secret@plane/"}`,
			`      |                     ^`)},
		{"over REST without a host", "upstream: {address: \"rest+https:///x\"}", lines(
			`relay.yaml:1:21: upstream.address: "rest+https:///x" has no host; write rest+https://host:port/`,
			`    1 | upstream: {address: "rest+https:///x"}`,
			`      |                     ^`)},
		{"over REST by another scheme", "upstream: {address: \"rest+ftp://plane/\"}", lines(
			`relay.yaml:1:21: upstream.address: "rest+ftp://plane/" is no URL of https or http; write rest+https://host:port/`,
			`    1 | upstream: {address: "rest+ftp://plane/"}`,
			`      |                     ^`)},
		{"over REST with a query", "upstream: {address: \"rest+https://plane/?a=b\"}", lines(
			`relay.yaml:1:21: upstream.address: "rest+https://plane/?a=b" has a query or fragment; write rest+https://host:port/, which v3/discovery:clusters is added to`,
			`    1 | upstream: {address: "rest+https://plane/?a=b"}`,
			`      |                     ^`)},
		{"over REST with the path of a type", "upstream: {address: \"rest+https://plane/v3/discovery:clusters\"}", lines(
			`relay.yaml:1:21: upstream.address: "rest+https://plane/v3/discovery:clusters" has the path of a type; write rest+https://host:port/, which v3/discovery:clusters is added to`,
			`    1 | upstream: {address: "rest+https://plane/v3/discovery:clusters"}`,
			`      |                     ^`)},
		{"over REST at a port that is none", "upstream: {address: \"rest+https://plane:70000/\"}", lines(
			`relay.yaml:1:21: upstream.address: port "70000" of "plane:70000" is not a number from 1 to 65535`,
			`    1 | upstream: {address: "rest+https://plane:70000/"}`,
			`      |                     ^`)},
		{"over REST in plaintext with TLS", "upstream: {address: \"rest+http://127.0.0.1:1/\", tls: {ca: ca.crt}}", lines(
			`relay.yaml:1:21: upstream.address: "rest+http://127.0.0.1:1/" is plaintext, but upstream.tls is set`,
			`    1 | upstream: {address: "rest+http://127.0.0.1:1/", tls: {ca: ca.crt}}`,
			`      |                     ^`,
			`  hint: write rest+https://, or remove upstream.tls`)},
		{"over REST, secured and insecure", "upstream: {insecure: true, address: \"rest+https://plane/\"}", lines(
			`relay.yaml:1:22: upstream.insecure: only permits plaintext, and "rest+https://plane/" is not`,
			`    1 | upstream: {insecure: true, address: "rest+https://plane/"}`,
			`      |                      ^`,
			`  hint: remove it, or write rest+http://`)},
		{"over REST, too often", "upstream: {rest: {poll: 10ms}}", lines(
			`relay.yaml:1:25: upstream.rest.poll: must be at least 100ms, is 10ms`,
			`    1 | upstream: {rest: {poll: 10ms}}`,
			`      |                         ^`,
			`  hint: 5s suits most control planes`)},
		{"over REST, with half a second to wait", "upstream: {rest: {wait: 1500ms}}", lines(
			`relay.yaml:1:25: upstream.rest.wait: must be whole seconds, up to 5m0s, is 1.5s`,
			`    1 | upstream: {rest: {wait: 1500ms}}`,
			`      |                         ^`,
			`  hint: for example 30s, or 0s for answers at once`)},
		{"over REST, without time", "upstream: {rest: {timeout: 0s}}", lines(
			`relay.yaml:1:28: upstream.rest.timeout: must be more than 0`,
			`    1 | upstream: {rest: {timeout: 0s}}`,
			`      |                            ^`)},
		{"files of no size", "upstream: {files: {max_bytes: 0}}", lines(
			`relay.yaml:1:31: upstream.files.max_bytes: must be more than 0`,
			`    1 | upstream: {files: {max_bytes: 0}}`,
			`      |                               ^`)},
		{"upstream with TLS and the system's roots", "upstream: {address: \"istiod:15012\", tls: {server_name: istiod}}", ""},
		{"upstream with TLS", "upstream: {address: \"dns://8.8.8.8/istiod:15012\", tls: {ca: ca.crt}}", ""},
		{"upstream with lenient TLS", "upstream: {address: \"consul:8503\", tls: {ca: ca.crt, alpn: lenient}}", ""},
		{"alpn without TLS", "upstream:\n  tls: {alpn: lenient}\n", lines(
			`relay.yaml:2:15: upstream.tls.alpn: says nothing without TLS`,
			`    2 |   tls: {alpn: lenient}`,
			`      |               ^`,
			`  hint: set upstream.tls.ca, or upstream.tls.server_name for the system's roots`)},
		{"unknown alpn", "upstream:\n  tls: {ca: x, alpn: h2}\n", lines(
			`relay.yaml:2:22: upstream.tls.alpn: unknown value "h2"`,
			`    2 |   tls: {ca: x, alpn: h2}`,
			`      |                      ^`,
			`  hint: use one of require, lenient`)},
		{"traces to this host", "tracing: {otlp_endpoint: \"http://127.0.0.1:4317\"}", ""},
		{"traces with TLS", "tracing: {otlp_endpoint: \"https://collector:4317\", tls: {ca: ca.crt}}", ""},
		{"traces in plaintext, accepted", "tracing: {otlp_endpoint: \"http://collector:4317\", insecure: true}", ""},
		{"traces in plaintext", "tracing: {otlp_endpoint: \"http://collector:4317\"}", lines(
			`relay.yaml:1:26: tracing.otlp_endpoint: "http://collector:4317" is not on this host and would be spoken to in plaintext`,
			`    1 | tracing: {otlp_endpoint: "http://collector:4317"}`,
			`      |                          ^`,
			`  hint: write https://, or set tracing.insecure: true if the network is trusted`)},
		{"traces without a scheme", "tracing: {otlp_endpoint: \"collector:4317\"}", lines(
			`relay.yaml:1:26: tracing.otlp_endpoint: "collector:4317" is not http://host:port or https://host:port`,
			`    1 | tracing: {otlp_endpoint: "collector:4317"}`,
			`      |                          ^`,
			`  hint: for example http://127.0.0.1:4317`)},
		{"traces over HTTP", "tracing: {otlp_endpoint: \"http://127.0.0.1:4318/v1/traces\"}", lines(
			`relay.yaml:1:26: tracing.otlp_endpoint: "http://127.0.0.1:4318/v1/traces" says more than http://host:port or https://host:port`,
			`    1 | tracing: {otlp_endpoint: "http://127.0.0.1:4318/v1/traces"}`,
			`      |                          ^`,
			`  hint: OTLP over gRPC has no path; headers go into OTEL_EXPORTER_OTLP_HEADERS`)},
		{"traces without a port", "tracing: {otlp_endpoint: \"http://127.0.0.1\"}", lines(
			`relay.yaml:1:26: tracing.otlp_endpoint: "http://127.0.0.1" has no port from 1 to 65535`,
			`    1 | tracing: {otlp_endpoint: "http://127.0.0.1"}`,
			`      |                          ^`,
			`  hint: collectors take OTLP over gRPC at port 4317`)},
		{"several mistakes about traces", "tracing:\n  sample_ratio: 1.5\n  always_sample: [nack, nack, fast]\n  slow_after: 0s\n", lines(
			`relay.yaml:2:17: tracing.sample_ratio: must be from 0 to 1, is 1.5`,
			`    2 |   sample_ratio: 1.5`,
			`      |                 ^`,
			`  hint: use 0.01 for one in a hundred`,
			`relay.yaml:3:25: tracing.always_sample[1]: "nack" is listed twice`,
			`    3 |   always_sample: [nack, nack, fast]`,
			`      |                         ^`,
			`relay.yaml:3:31: tracing.always_sample[2]: unknown value "fast"`,
			`    3 |   always_sample: [nack, nack, fast]`,
			`      |                               ^`,
			`  hint: use one of nack, slow`,
			`relay.yaml:4:15: tracing.slow_after: must be more than 0`,
			`    4 |   slow_after: 0s`,
			`      |               ^`)},
		{"upstream in plaintext", "upstream:\n  address: istiod:15010\n", lines(
			`relay.yaml:2:12: upstream.address: "istiod:15010" is not on this host and would be spoken to in plaintext`,
			`    2 |   address: istiod:15010`,
			`      |            ^`,
			`  hint: set upstream.tls, or upstream.insecure: true if the network is trusted`)},
		{"upstream with an empty tls section", "upstream:\n  address: dns:///istiod:15010\n  tls: {}\n", lines(
			`relay.yaml:2:12: upstream.address: "dns:///istiod:15010" is not on this host and would be spoken to in plaintext`,
			`    2 |   address: dns:///istiod:15010`,
			`      |            ^`,
			`  hint: set upstream.tls, or upstream.insecure: true if the network is trusted`)},
		{"insecure beside tls", "upstream:\n  tls: {ca: x}\n  insecure: true\n", lines(
			`relay.yaml:3:13: upstream.insecure: only permits plaintext, but upstream.tls is set`,
			`    3 |   insecure: true`,
			`      |             ^`,
			`  hint: remove one of the two; there is no way to skip the check of certificates`)},
		{"upstream without a port", "upstream:\n  address: istiod\n", lines(
			`relay.yaml:2:12: upstream.address: "istiod" has no port; write host:port`,
			`    2 |   address: istiod`,
			`      |            ^`)},
		{"upstream that is empty", "upstream:\n  address: \"\"\n", lines(
			`relay.yaml:2:12: upstream.address: is empty; write host:port`,
			`    2 |   address: ""`,
			`      |            ^`)},
		{"upstream without a host", "upstream: {address: \":15010\"}", lines(
			`relay.yaml:1:21: upstream.address: ":15010" has no host; write host:port`,
			`    1 | upstream: {address: ":15010"}`,
			`      |                     ^`)},
		{"upstream with a URL", "upstream: {address: \"https://istiod:15012\"}", lines(
			`relay.yaml:1:21: upstream.address: "https://istiod:15012" is a URL; write host:port without https://, and set tls to secure it; or rest+https://… if the control plane speaks xDS over REST only`,
			`    1 | upstream: {address: "https://istiod:15012"}`,
			`      |                     ^`)},
		{"upstream with another scheme", "upstream: {address: \"xds:///istiod\"}", lines(
			`relay.yaml:1:21: upstream.address: unknown scheme "xds"; write host:port, dns:///host:port, unix:///path, files:///path or rest+https://host/`,
			`    1 | upstream: {address: "xds:///istiod"}`,
			`      |                     ^`)},
		{"upstream with two slashes", "upstream: {address: \"dns://istiod:1\"}", lines(
			`relay.yaml:1:21: upstream.address: "dns://istiod:1" lacks a slash; write dns:///host:port`,
			`    1 | upstream: {address: "dns://istiod:1"}`,
			`      |                     ^`)},
		{"upstream with a relative socket", "upstream: {address: \"unix:x.sock\"}", lines(
			`relay.yaml:1:21: upstream.address: "unix:x.sock" is not an absolute socket path; write unix:///path`,
			`    1 | upstream: {address: "unix:x.sock"}`,
			`      |                     ^`)},
		{"upstream with a bare IPv6 address", "upstream: {address: \"::1:15010\"}", lines(
			`relay.yaml:1:21: upstream.address: "::1:15010" is ambiguous; put an IPv6 address in brackets: [::1]:18000`,
			`    1 | upstream: {address: "::1:15010"}`,
			`      |                     ^`)},
		{"upstream on port 0", "upstream: {address: \"localhost:0\"}", lines(
			`relay.yaml:1:21: upstream.address: port "0" of "localhost:0" is not a number from 1 to 65535`,
			`    1 | upstream: {address: "localhost:0"}`,
			`      |                     ^`)},
		{"a certificate without a key", "upstream: {tls: {cert: a.crt}}\ndownstream: {tls: {key: a.key}}\n", lines(
			`relay.yaml:1:24: upstream.tls.cert: needs its private key too`,
			`    1 | upstream: {tls: {cert: a.crt}}`,
			`      |                        ^`,
			`  hint: set upstream.tls.key`,
			`relay.yaml:2:25: downstream.tls.key: needs its certificate too`,
			`    2 | downstream: {tls: {key: a.key}}`,
			`      |                         ^`,
			`  hint: set downstream.tls.cert`)},
		{"an empty node", "upstream: {node: {id: \"\"}}", lines(
			`relay.yaml:1:23: upstream.node.id: must not be empty: control planes identify a client by it`,
			`    1 | upstream: {node: {id: ""}}`,
			`      |                       ^`,
			`  hint: remove the line to use the default, xds-relay`)},
		{"a node mode of another version", "upstream: {node_mode: dynamic}", lines(
			`relay.yaml:1:23: upstream.node_mode: unknown value "dynamic"`,
			`    1 | upstream: {node_mode: dynamic}`,
			`      |                       ^`,
			`  hint: use one of static, template, passthrough`)},
		{"back-off", "upstream:\n  backoff: {initial: 0s, factor: 0.5, jitter: 2, max: -1s}\n", lines(
			`relay.yaml:2:22: upstream.backoff.initial: must be more than 0`,
			`    2 |   backoff: {initial: 0s, factor: 0.5, jitter: 2, max: -1s}`,
			`      |                      ^`,
			`relay.yaml:2:34: upstream.backoff.factor: must be at least 1, is 0.5`,
			`    2 |   backoff: {initial: 0s, factor: 0.5, jitter: 2, max: -1s}`,
			`      |                                  ^`,
			`relay.yaml:2:47: upstream.backoff.jitter: must be from 0 to 1, is 2`,
			`    2 |   backoff: {initial: 0s, factor: 0.5, jitter: 2, max: -1s}`,
			`      |                                               ^`,
			`relay.yaml:2:55: upstream.backoff.max: must not be negative, is -1s`,
			`    2 |   backoff: {initial: 0s, factor: 0.5, jitter: 2, max: -1s}`,
			`      |                                                       ^`)},
		// Nothing in the file says max, so what it does say is blamed.
		{"back-off beyond its default end", "upstream:\n  backoff:\n    initial: 1h\n", lines(
			`relay.yaml:3:14: upstream.backoff.initial: 1h0m0s is more than upstream.backoff.max, 10s`,
			`    3 |     initial: 1h`,
			`      |              ^`)},
		{"back-off that shrinks", "upstream: {backoff: {initial: 5s, max: 1s}}", lines(
			`relay.yaml:1:40: upstream.backoff.max: 1s is less than upstream.backoff.initial, 5s`,
			`    1 | upstream: {backoff: {initial: 5s, max: 1s}}`,
			`      |                                        ^`)},
		{"keepalive that servers punish", "upstream: {keepalive: 1s}", lines(
			`relay.yaml:1:23: upstream.keepalive: must be 0 or at least 10s, is 1s`,
			`    1 | upstream: {keepalive: 1s}`,
			`      |                       ^`,
			`  hint: use 0 for none, and 5m or more unless the server permits more frequent pings`)},
		{"a negative duration", "timers:\n  name_linger: -30s\n", lines(
			`relay.yaml:2:16: timers.name_linger: must not be negative, is -30s`,
			`    2 |   name_linger: -30s`,
			`      |                ^`)},
		{"sizes", "upstream: {max_receive_bytes: 2GiB}\ndownstream: {max_name_bytes: -1, max_request_bytes: 0}\n", lines(
			`relay.yaml:1:31: upstream.max_receive_bytes: must be less than 2GiB, is 2GiB`,
			`    1 | upstream: {max_receive_bytes: 2GiB}`,
			`      |                               ^`,
			`relay.yaml:2:30: downstream.max_name_bytes: must not be negative, is -1B`,
			`    2 | downstream: {max_name_bytes: -1, max_request_bytes: 0}`,
			`      |                              ^`,
			`relay.yaml:2:53: downstream.max_request_bytes: must be more than 0`,
			`    2 | downstream: {max_name_bytes: -1, max_request_bytes: 0}`,
			`      |                                                     ^`)},
		{"a request without room for a name", "upstream: {max_request_bytes: 4KiB}\n", lines(
			`relay.yaml:1:31: upstream.max_request_bytes: must be at least 4352B, is 4KiB`,
			`    1 | upstream: {max_request_bytes: 4KiB}`,
			`      |                               ^`,
			`  hint: it has to hold a node and one name of downstream.max_name_bytes`)},
		{"limits of a stream", "downstream: {request_burst: 0, max_response_bytes: 100B, max_connection_age: 10ms}\n", lines(
			`relay.yaml:1:29: downstream.request_burst: must be more than 0 where downstream.request_rate is`,
			`    1 | downstream: {request_burst: 0, max_response_bytes: 100B, max_connection_age: 10ms}`,
			`      |                             ^`,
			`  hint: it is what a stream may send at once`,
			`relay.yaml:1:52: downstream.max_response_bytes: must be 0 or at least 512B, is 100B`,
			`    1 | downstream: {request_burst: 0, max_response_bytes: 100B, max_connection_age: 10ms}`,
			`      |                                                    ^`,
			`  hint: use 0 for no limit, and 4MiB for gRPC's xDS clients`,
			`relay.yaml:1:78: downstream.max_connection_age: must be 0 or at least 1s, is 10ms`,
			`    1 | downstream: {request_burst: 0, max_response_bytes: 100B, max_connection_age: 10ms}`,
			`      |                                                                              ^`,
			`  hint: use 0 for no limit`)},
		{"streams without limits", "downstream: {request_rate: 0, request_burst: 0, stall_timeout: 0, drain_delay: 0}\n", ""},
		{"unknown types", "upstream: {types: [CDS, Cluster, \"\", cds]}", lines(
			`relay.yaml:1:25: upstream.types[1]: "Cluster" is neither a type URL nor a short name`,
			`    1 | upstream: {types: [CDS, Cluster, "", cds]}`,
			`      |                         ^`,
			`  hint: for example CDS or type.googleapis.com/envoy.config.cluster.v3.Cluster`,
			`relay.yaml:1:34: upstream.types[2]: is missing`,
			`    1 | upstream: {types: [CDS, Cluster, "", cds]}`,
			`      |                                  ^`,
			`  hint: for example CDS or type.googleapis.com/envoy.config.cluster.v3.Cluster`,
			`relay.yaml:1:38: upstream.types[3]: "cds" is listed twice`,
			`    1 | upstream: {types: [CDS, Cluster, "", cds]}`,
			`      |                                      ^`)},
		{"listeners on this host", "downstream: {listen: [\"localhost:0\", \"localhost:0\", \"127.0.0.9:1\", \"unix:///run/x.sock\"]}", ""},
		{"a public listener with TLS", "downstream: {listen: [\":18000\"], tls: {cert: a, key: b}}", ""},
		{"a public listener, accepted", "downstream: {listen: [\":18000\"], insecure: true}", ""},
		{"no listener", "downstream:\n  listen: []\n", lines(
			`relay.yaml:2:11: downstream.listen: needs at least one address`,
			`    2 |   listen: []`,
			`      |           ^`,
			`  hint: for example ["127.0.0.1:18000"]`)},
		{"a public listener in plaintext", "downstream:\n  listen:\n    - 127.0.0.1:1\n    - :18000\n", lines(
			`relay.yaml:4:7: downstream.listen[1]: ":18000" can be reached from other hosts and would be plaintext`,
			`    4 |     - :18000`,
			`      |       ^`,
			`  hint: set downstream.tls, or downstream.insecure: true if the network is trusted`)},
		{"bad listeners", "downstream:\n  listen: [http://x:1, 'localhost:http', 'localhost:1', 'localhost:1', 'a b:1', '[::1:1']\n", lines(
			`relay.yaml:2:12: downstream.listen[0]: cannot listen on a http:// address; write host:port or unix:///path`,
			`    2 |   listen: [http://x:1, 'localhost:http', 'localhost:1', 'localhost:1', 'a b:1', '[::1:1']`,
			`      |            ^`,
			`relay.yaml:2:24: downstream.listen[1]: port "http" of "localhost:http" is not a number from 0 to 65535`,
			`    2 |   listen: [http://x:1, 'localhost:http', 'localhost:1', 'localhost:1', 'a b:1', '[::1:1']`,
			`      |                        ^`,
			`relay.yaml:2:57: downstream.listen[3]: "localhost:1" is listed twice`,
			`    2 |   listen: [http://x:1, 'localhost:http', 'localhost:1', 'localhost:1', 'a b:1', '[::1:1']`,
			`      |                                                         ^`,
			`relay.yaml:2:72: downstream.listen[4]: "a b" is not a host name`,
			`    2 |   listen: [http://x:1, 'localhost:http', 'localhost:1', 'localhost:1', 'a b:1', '[::1:1']`,
			`      |                                                                        ^`,
			`relay.yaml:2:81: downstream.listen[5]: "[::1:1" is not host:port`,
			`    2 |   listen: [http://x:1, 'localhost:http', 'localhost:1', 'localhost:1', 'a b:1', '[::1:1']`,
			`      |                                                                                 ^`)},
		{"client certificates without TLS", "downstream:\n  tls:\n    client_ca: ca.crt\n", lines(
			`relay.yaml:3:16: downstream.tls.client_ca: needs a certificate of the server too`,
			`    3 |     client_ca: ca.crt`,
			`      |                ^`,
			`  hint: set downstream.tls.cert and downstream.tls.key`)},
		{"insecure beside downstream tls", "downstream: {insecure: true, tls: {cert: a, key: b}}", lines(
			`relay.yaml:1:24: downstream.insecure: only permits plaintext, but downstream.tls is set`,
			`    1 | downstream: {insecure: true, tls: {cert: a, key: b}}`,
			`      |                        ^`,
			`  hint: remove one of the two`)},
		{"group keys", "groups:\n  key: [id, region, id, metadata., metadata.a..b]\n  max: 0\n", lines(
			`relay.yaml:2:13: groups.key[1]: unknown node field "region"`,
			`    2 |   key: [id, region, id, metadata., metadata.a..b]`,
			`      |             ^`,
			`  hint: use id, cluster, locality.region, locality.zone, locality.sub_zone, user_agent_name, user_agent_version, client_features, dynamic_parameters, node, identity, metadata.<path> or constant.<text>`,
			`relay.yaml:2:21: groups.key[2]: "id" is listed twice`,
			`    2 |   key: [id, region, id, metadata., metadata.a..b]`,
			`      |                     ^`,
			`relay.yaml:2:25: groups.key[3]: "metadata." has an empty step`,
			`    2 |   key: [id, region, id, metadata., metadata.a..b]`,
			`      |                         ^`,
			`  hint: for example metadata.team or metadata.labels.app`,
			`relay.yaml:2:36: groups.key[4]: "metadata.a..b" has an empty step`,
			`    2 |   key: [id, region, id, metadata., metadata.a..b]`,
			`      |                                    ^`,
			`  hint: for example metadata.team or metadata.labels.app`,
			`relay.yaml:3:8: groups.max: must be more than 0`,
			`    3 |   max: 0`,
			`      |        ^`)},
		{"secrets, said twice", "groups: {secrets: shared, share_secrets: true}", ""},
		{"shared secrets, in the older spelling", "groups: {share_secrets: true}", ""},
		{"secrets that are shared and are not", "groups:\n  secrets: policy\n  share_secrets: true\n", lines(
			`relay.yaml:3:18: groups.share_secrets: contradicts groups.secrets: policy`,
			`    3 |   share_secrets: true`,
			`      |                  ^`,
			`  hint: remove it, or set groups.secrets to shared`)},
		{"unknown secrets", "groups: {secrets: anybody}", lines(
			`relay.yaml:1:19: groups.secrets: unknown value "anybody"`,
			`    1 | groups: {secrets: anybody}`,
			`      |                   ^`,
			`  hint: use one of policy, identity, shared`)},
		{"identities to send", "groups: {send_identity: true}\ndownstream: {tls: {cert: a, key: b, client_ca: c}}", ""},
		{"identities of a key", "groups: {send_identity: true, secrets: shared, key: [identity]}\ndownstream: {tls: {cert: a, key: b, client_ca: c}}", ""},
		{"no identities to send", "groups: {send_identity: true}", lines(
			`relay.yaml:1:25: groups.send_identity: needs clients that prove who they are`,
			`    1 | groups: {send_identity: true}`,
			`      |                         ^`,
			`  hint: set downstream.tls.client_ca`)},
		{"identities of nobody's groups", "groups: {send_identity: true, secrets: shared, key: [id]}\ndownstream: {tls: {cert: a, key: b, client_ca: c}}", lines(
			`relay.yaml:1:25: groups.send_identity: has no effect: no group is of one identity's clients alone`,
			`    1 | groups: {send_identity: true, secrets: shared, key: [id]}`,
			`      |                         ^`,
			`  hint: add identity to groups.key, or set groups.secrets to policy or identity`)},
		{"an identity of the relay's", "upstream: {node: {metadata: {xds-relay.client_identity: me}}}", lines(
			`relay.yaml:1:29: upstream.node.metadata: "xds-relay.client_identity" is the identity of clients, not the relay's`,
			`    1 | upstream: {node: {metadata: {xds-relay.client_identity: me}}}`,
			`      |                             ^`,
			`  hint: remove it; groups.send_identity sets it for each group`)},
		{"keys of types", "groups:\n  types:\n    - {type_url: EDS, key: [constant., identity]}\n    - {type_url: eds, key: [zone]}\n", lines(
			`relay.yaml:3:29: groups.types[0].key[0]: "constant." has an empty step`,
			`    3 |     - {type_url: EDS, key: [constant., identity]}`,
			`      |                             ^`,
			`  hint: for example constant.blue`,
			`relay.yaml:3:40: groups.types[0].key[1]: needs clients that prove who they are`,
			`    3 |     - {type_url: EDS, key: [constant., identity]}`,
			`      |                                        ^`,
			`  hint: set downstream.tls.client_ca`,
			`relay.yaml:4:18: groups.types[1].type_url: "eds" is the same type as groups.types[0]`,
			`    4 |     - {type_url: eds, key: [zone]}`,
			`      |                  ^`,
			`  hint: merge the two entries`,
			`relay.yaml:4:29: groups.types[1].key[0]: unknown node field "zone"`,
			`    4 |     - {type_url: eds, key: [zone]}`,
			`      |                             ^`,
			`  hint: use id, cluster, locality.region, locality.zone, locality.sub_zone, user_agent_name, user_agent_version, client_features, dynamic_parameters, node, identity, metadata.<path> or constant.<text>`)},
		{"somebody else's node", "upstream: {node_mode: passthrough}\ngroups: {key: [id]}\n", lines(
			`relay.yaml:1:23: upstream.node_mode: passthrough sends a client's node, so that every group key must hold it`,
			`    1 | upstream: {node_mode: passthrough}`,
			`      |                       ^`,
			`  hint: add node to groups.key and to every key of groups.types, or use template`)},
		{"a wish of nobody's", "groups: {profile: sidecar}\ndownstream: {ready_types: [CDS]}\n", lines(
			`relay.yaml:2:27: downstream.ready_types: the relay has no node of its own to ask with when upstream.node_mode is passthrough`,
			`    2 | downstream: {ready_types: [CDS]}`,
			`      |                           ^`,
			`  hint: leave it out, or use another upstream.node_mode`)},
		{"guard", "cache: {mass_removal_guard: {fraction: 1, min: 0, hold: 0s}}\n", lines(
			`relay.yaml:1:40: cache.mass_removal_guard.fraction: must be at least 0 and less than 1, is 1`,
			`    1 | cache: {mass_removal_guard: {fraction: 1, min: 0, hold: 0s}}`,
			`      |                                        ^`,
			`  hint: use 0.5, or 0 for no guard`,
			`relay.yaml:1:48: cache.mass_removal_guard.min: must be more than 0`,
			`    1 | cache: {mass_removal_guard: {fraction: 1, min: 0, hold: 0s}}`,
			`      |                                                ^`,
			`relay.yaml:1:57: cache.mass_removal_guard.hold: must be more than 0`,
			`    1 | cache: {mass_removal_guard: {fraction: 1, min: 0, hold: 0s}}`,
			`      |                                                         ^`)},
		{"type overrides", "types:\n  - type_url: CDS\n  - empty_means: all\n  - type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster\n", lines(
			`relay.yaml:3:5: types[1].type_url: is missing`,
			`    3 |   - empty_means: all`,
			`      |     ^`,
			`  hint: for example CDS or type.googleapis.com/envoy.config.cluster.v3.Cluster`,
			`relay.yaml:3:18: types[1].empty_means: unknown value "all"`,
			`    3 |   - empty_means: all`,
			`      |                  ^`,
			`  hint: use one of wildcard, nothing`,
			`relay.yaml:4:15: types[2].type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster" is the same type as types[0]`,
			`    4 |   - type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster`,
			`      |               ^`,
			`  hint: merge the two entries`)},
		{"timers", "timers: {settle: 6s, dne_timeout: 0}", lines(
			`relay.yaml:1:18: timers.settle: 6s is more than timers.settle_cap, 5s`,
			`    1 | timers: {settle: 6s, dne_timeout: 0}`,
			`      |                  ^`,
			`relay.yaml:1:35: timers.dne_timeout: must be more than 0`,
			`    1 | timers: {settle: 6s, dne_timeout: 0}`,
			`      |                                   ^`)},
		{"a public admin endpoint", "admin:\n  listen: 0.0.0.0:18001\n", lines(
			`relay.yaml:2:11: admin.listen: "0.0.0.0:18001" can be reached from other hosts, and the endpoint has no authentication`,
			`    2 |   listen: 0.0.0.0:18001`,
			`      |           ^`,
			`  hint: use 127.0.0.1:18001 or unix:///path`)},
		{"admin where clients connect", "admin:\n  listen: 127.0.0.1:18000\n", lines(
			`relay.yaml:2:11: admin.listen: "127.0.0.1:18000" is also in downstream.listen`,
			`    2 |   listen: 127.0.0.1:18000`,
			`      |           ^`,
			`  hint: use another port for one of the two`)},
		{"probes where clients connect", "metrics:\n  listen: 127.0.0.1:18000\n", lines(
			`relay.yaml:2:11: metrics.listen: "127.0.0.1:18000" is also in downstream.listen`,
			`    2 |   listen: 127.0.0.1:18000`,
			`      |           ^`,
			`  hint: use another port for one of the two`)},
		{"probes without a port", "metrics: {listen: 0.0.0.0}", lines(
			`relay.yaml:1:19: metrics.listen: "0.0.0.0" has no port; write host:port`,
			`    1 | metrics: {listen: 0.0.0.0}`,
			`      |                   ^`)},
		{"admin without a port", "admin: {listen: localhost}", lines(
			`relay.yaml:1:17: admin.listen: "localhost" has no port; write host:port`,
			`    1 | admin: {listen: localhost}`,
			`      |                 ^`)},
		{"an instance that cannot be in a header", "instance: \"a,b\"", lines(
			`relay.yaml:1:11: instance: "a,b" cannot be a name in a header`,
			`    1 | instance: "a,b"`,
			`      |           ^`,
			`  hint: use at most 253 printable ASCII characters, no space, no comma`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("relay.yaml", []byte(tt.file), nil)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			checkErr(t, err, tt.want)
		})
	}
}

// A configuration made by a program has no places to point at.
func TestValidateWithoutAFile(t *testing.T) {
	c := Default()
	c.Upstream.Backoff.Factor = math.NaN()
	c.Upstream.Backoff.Jitter = math.NaN()
	checkErr(t, c.Validate(), lines(
		`upstream.backoff.factor: must be at least 1, is NaN`,
		`upstream.backoff.jitter: must be from 0 to 1, is NaN`))

	var zero Config
	checkErr(t, zero.Validate(), "apiVersion: \"\" is not a format this version reads\n  hint: write apiVersion: xds-relay/v1alpha1")
}

func TestSplitListen(t *testing.T) {
	for _, tt := range []struct{ in, network, address string }{
		{":18000", "tcp", ":18000"},
		{"[::1]:0", "tcp", "[::1]:0"},
		{"unix:///run/x.sock", "unix", "/run/x.sock"},
		{"unix:/run/x.sock", "unix", "/run/x.sock"},
	} {
		network, address, err := SplitListen(tt.in)
		if err != nil || network != tt.network || address != tt.address {
			t.Errorf("SplitListen(%q) = %q, %q, %v", tt.in, network, address, err)
		}
	}
	for _, in := range []string{"", "x", "unix:", "unix:///", "unix://x/y", "unix:x", "unix-abstract:", "unix-abstract:/x", "unix-abstract:a\x00b", "unix-abstract:" + strings.Repeat("x", 108), "unix:///" + strings.Repeat("x", 200), "unix:///a\x00b", "tcp://x:1", "x:99999", "x:-1", "x:1:2"} {
		if _, _, err := SplitListen(in); err == nil {
			t.Errorf("SplitListen(%q) succeeded", in)
		}
	}
}
