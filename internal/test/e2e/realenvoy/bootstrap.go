package realenvoy

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Bootstrap is an Envoy's bootstrap, as JSON has it. Start adds the admin interface.
// A test that has one of its own, such as a control plane's tool writes, unmarshals it
// into this.
type Bootstrap map[string]any

// Object is an object of JSON.
type Object = map[string]any

// Node is how an Envoy introduces itself.
type Node struct {
	ID, Cluster string
	Metadata    Object
}

// Source is an xDS server.
type Source struct {
	// Target is host:port, or the path of a Unix socket.
	Target string
	// SotW asks for whole states; else it is Delta.
	SotW bool
	// REST has the Envoy poll so often, with HTTP/1.1 if HTTP1 is set; zero: it opens streams.
	REST  time.Duration
	HTTP1 bool
	// TLS, if set, secures the connection.
	TLS *TLS
	// Metadata goes out with each stream.
	Metadata map[string]string
}

// TLS names files in PEM. Cert and Key may be empty. If Follow is set, it is a file that WriteSecret has written, and
// Envoy takes its certificate from what that names, and again when that is replaced.
type TLS struct{ CA, Cert, Key, ServerName, Follow string }

// WriteSecret writes a file for TLS.Follow: the certificate and its key in a directory, in files as Kubernetes names them.
func WriteSecret(t testing.TB, dir string) (file string) {
	t.Helper()
	named := func(name string) Object { return Object{"filename": filepath.Join(dir, name)} }
	text, err := json.Marshal(Object{"resources": []any{Object{
		"@type": string(cache.Secret), "name": ownSecret,
		"tls_certificate": Object{"certificate_chain": named("tls.crt"), "private_key": named("tls.key"), "watched_directory": Object{"path": dir}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "sds.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ownSecret is the name of the Secret in such a file.
const ownSecret = "own"

// sourceCluster is the static cluster that a Source is.
const sourceCluster = "xds-source"

// ADS has an Envoy take clusters and listeners, and what these refer to by ADS, from
// one aggregated stream.
func ADS(node Node, s Source) Bootstrap {
	ads := func() Object { return Object{"ads": Object{}, "resource_api_version": "V3"} }
	return bootstrap(node, s, Object{"ads_config": s.api(), "cds_config": ads(), "lds_config": ads()})
}

// PerType has an Envoy take clusters and listeners from a stream each. What these refer
// to, and how, is theirs to say; ConfigSource is for that.
func PerType(node Node, s Source) Bootstrap {
	return bootstrap(node, s, Object{"cds_config": s.ConfigSource(), "lds_config": s.ConfigSource()})
}

// ConfigSource is the source as a resource refers to it that wants a stream of its own.
func (s Source) ConfigSource() Object {
	return Object{"api_config_source": s.api(), "resource_api_version": "V3"}
}

func bootstrap(node Node, s Source, resources Object) Bootstrap {
	n := Object{"id": node.ID, "cluster": node.Cluster}
	if len(node.Metadata) > 0 {
		n["metadata"] = node.Metadata
	}
	return Bootstrap{
		"node":              n,
		"dynamic_resources": resources,
		"static_resources":  Object{"clusters": []any{s.cluster()}},
	}
}

// api asks for the source. An Envoy that lost it comes back sooner here than by default
// (0.5 s to 30 s), since tests wait for that.
func (s Source) api() Object {
	if s.REST > 0 {
		return Object{
			"api_type": "REST", "transport_api_version": "V3", "cluster_names": []any{sourceCluster},
			"refresh_delay": fmt.Sprintf("%.3fs", s.REST.Seconds()), "request_timeout": "70s",
		}
	}
	kind := "DELTA_GRPC"
	if s.SotW {
		kind = "GRPC"
	}
	service := Object{"envoy_grpc": Object{
		"cluster_name": sourceCluster,
		"retry_policy": Object{"retry_back_off": Object{"base_interval": "0.1s", "max_interval": "1s"}},
	}}
	if len(s.Metadata) > 0 {
		var metadata []any
		for key, value := range s.Metadata {
			metadata = append(metadata, Object{"key": key, "value": value})
		}
		service["initial_metadata"] = metadata
	}
	if kind == "GRPC" {
		return Object{"api_type": kind, "transport_api_version": "V3", "set_node_on_first_message_only": true, "grpc_services": []any{service}}
	}
	return Object{"api_type": kind, "transport_api_version": "V3", "grpc_services": []any{service}}
}

func (s Source) cluster() Object {
	address := Object{"pipe": Object{"path": s.Target}}
	kind := "STATIC"
	if !strings.HasPrefix(s.Target, "/") {
		host, port, err := net.SplitHostPort(s.Target)
		n, numeric := strconv.Atoi(port)
		if err != nil || numeric != nil {
			panic(fmt.Sprintf("realenvoy: the target %q is neither host:port nor a path", s.Target)) // a test's own mistake
		}
		address = Object{"socket_address": Object{"address": host, "port_value": n}}
		if net.ParseIP(host) == nil {
			kind = "STRICT_DNS"
		}
	}
	c := Object{
		"name":            sourceCluster,
		"type":            kind,
		"connect_timeout": "1s",
		"load_assignment": Object{"cluster_name": sourceCluster, "endpoints": []any{Object{
			"lb_endpoints": []any{Object{"endpoint": Object{"address": address}}},
		}}},
		"typed_extension_protocol_options": Object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": Object{
			"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config": Object{"http2_protocol_options": Object{}},
		}},
	}
	if s.HTTP1 {
		delete(c, "typed_extension_protocol_options")
	}
	if s.TLS != nil {
		c["transport_socket"] = s.TLS.socket()
	}
	return c
}

func (t *TLS) socket() Object {
	file := func(name string) Object { return Object{"filename": name} }
	common := Object{"validation_context": Object{"trusted_ca": file(t.CA)}}
	switch {
	case t.Follow != "":
		common["tls_certificate_sds_secret_configs"] = []any{Object{"name": ownSecret, "sds_config": Object{
			"path_config_source": Object{"path": t.Follow}, "resource_api_version": "V3",
		}}}
	case t.Cert != "":
		common["tls_certificates"] = []any{Object{"certificate_chain": file(t.Cert), "private_key": file(t.Key)}}
	}
	return Object{"name": "envoy.transport_sockets.tls", "typed_config": Object{
		"@type":              "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
		"common_tls_context": common,
		"sni":                t.ServerName,
	}}
}

// ReportLoad has the Envoy report its load to its source.
func (b Bootstrap) ReportLoad() {
	b["cluster_manager"] = Object{"load_stats_config": Object{
		"api_type": "GRPC", "transport_api_version": "V3",
		"grpc_services": []any{Object{"envoy_grpc": Object{"cluster_name": sourceCluster}}},
	}}
}
