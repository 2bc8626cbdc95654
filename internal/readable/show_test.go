package readable

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// canary must not come out of anything.
const canary = "canary-of-a-secret"

const prefix = "type.googleapis.com/"

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func show(t *testing.T, m proto.Message) string {
	t.Helper()
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	a := pack(t, m)
	text, err := s.Show(a.GetTypeUrl(), a.GetValue())
	if err != nil || !json.Valid(text) {
		t.Fatalf("%s: %v", text, err)
	}
	return string(text)
}

// TestShow: fields, well-known types and what lies in an Any are as people know them.
func TestShow(t *testing.T) {
	got := show(t, &cluster.Cluster{
		Name: "a", ConnectTimeout: durationpb.New(5e9), LbPolicy: cluster.Cluster_RING_HASH,
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(7),
		Metadata:                      &core.Metadata{FilterMetadata: map[string]*structpb.Struct{"f": {Fields: map[string]*structpb.Value{"k": structpb.NewStringValue("v")}}}},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{
			"known": pack(t, wrapperspb.String("s")), "unknown": {TypeUrl: prefix + "example.Unknown", Value: []byte("1234")},
		},
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
	})
	want := `{"connect_timeout":"5s","lb_policy":"RING_HASH","metadata":{"filter_metadata":{"f":{"k":"v"}}},"name":"a","per_connection_buffer_limit_bytes":7,"type":"EDS",` +
		`"typed_extension_protocol_options":{"known":{"@type":"type.googleapis.com/google.protobuf.StringValue","value":"s"},"unknown":{"@bytes":4,"@type":"type.googleapis.com/example.Unknown"}}}`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestNoSecret: what is marked as sensitive, inline data, Secrets, and data in what has no schema are not shown,
// however deep they lie.
func TestNoSecret(t *testing.T) {
	inline := &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: canary}}
	secret := &tls.Secret{Name: "s", Type: &tls.Secret_GenericSecret{GenericSecret: &tls.GenericSecret{Secret: inline}}}
	certificate := &tls.TlsCertificate{
		CertificateChain: &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: []byte(canary)}},
		PrivateKey:       &core.DataSource{Specifier: &core.DataSource_Filename{Filename: canary}}, // sensitive, whatever it has
	}
	free := &structpb.Struct{Fields: map[string]*structpb.Value{"list": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
		structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"inline_string": structpb.NewStringValue(canary), "inlineBytes": structpb.NewStringValue(canary)}}),
	}})}}
	upstream := &tls.UpstreamTlsContext{Sni: "shown", CommonTlsContext: &tls.CommonTlsContext{TlsCertificates: []*tls.TlsCertificate{certificate}}}
	got := show(t, &cluster.Cluster{
		Name:     "a",
		Metadata: &core.Metadata{FilterMetadata: map[string]*structpb.Struct{"f": free}},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{
			"secret": pack(t, secret), "nested": pack(t, pack(t, secret)), "raw": {TypeUrl: "example.com/envoy.extensions.transport_sockets.tls.v3.Secret", Value: []byte(canary)},
			"v2": {TypeUrl: prefix + "envoy.api.v2.auth.Secret", Value: []byte(canary)},
		},
		TransportSocket: &core.TransportSocket{Name: "tls", ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: pack(t, upstream)}},
	})
	for _, hidden := range []string{canary, "Y2FuYXJ5"} { // also as base64
		if strings.Contains(got, hidden) {
			t.Errorf("%q is in %s", hidden, got)
		}
	}
	if n := strings.Count(got, redacted); n != 8 || !strings.Contains(got, `"sni":"shown"`) {
		t.Errorf("%d things are redacted in %s", n, got)
	}
	if got := show(t, secret); got != `"`+redacted+`"` {
		t.Error(got)
	}
}

// TestNotSound: what is no such message, is not known, or is newer.
func TestNotSound(t *testing.T) {
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Show(prefix+"example.Unknown", nil); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	for _, url := range []string{"", "/", prefix, prefix + "envoy.config.cluster.v3.Cluster.DiscoveryType"} {
		if _, err := s.Show(url, nil); err == nil {
			t.Errorf("%q is a message", url)
		}
	}
	const of = prefix + "envoy.config.cluster.v3.Cluster"
	if _, err := s.Show(of, []byte{0xff}); err == nil {
		t.Error("bytes that are no Cluster are one")
	}
	newer := protowire.AppendBytes(protowire.AppendTag(nil, 50_000, protowire.BytesType), []byte(canary))
	got, err := s.Show(of, newer)
	if err != nil || strings.Contains(string(got), canary) || !strings.Contains(string(got), "bytes of fields that this relay does not know") {
		t.Errorf("%s, %v", got, err)
	}
	var deep *anypb.Any
	for range 300 {
		if deep == nil {
			deep = &anypb.Any{}
			continue
		}
		deep = pack(t, deep)
	}
	if got, err := s.Show(deep.GetTypeUrl(), deep.GetValue()); err != nil || !strings.Contains(string(got), "[too deep]") {
		t.Errorf("%.200s, %v", got, err)
	}
}

// TestAll: every message and service that is embedded can be used.
func TestAll(t *testing.T) {
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for name := range s.symbols {
		if _, err := s.look(name); err != nil {
			t.Errorf("%s cannot be used: %v", name, err)
		}
	}
	for _, common := range []string{
		"envoy.config.listener.v3.Listener", "envoy.config.route.v3.RouteConfiguration", "envoy.config.endpoint.v3.ClusterLoadAssignment", "envoy.config.route.v3.ScopedRouteConfiguration",
		"envoy.config.route.v3.VirtualHost", "envoy.config.core.v3.TypedExtensionConfig", "envoy.service.runtime.v3.Runtime", "envoy.config.endpoint.v3.LbEndpoint",
		"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "envoy.extensions.filters.http.router.v3.Router", "xds.type.v3.TypedStruct",
	} {
		if got, err := s.Show(prefix+common, nil); err != nil || string(got) != "{}" {
			t.Errorf("%s: %s, %v", common, got, err)
		}
	}
}

// FuzzShow: whatever bytes there are, they do no harm, and what comes out is JSON.
func FuzzShow(f *testing.F) {
	s, err := Load()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("\n\x01a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if text, err := s.Show(prefix+"envoy.config.listener.v3.Listener", data); err == nil && !json.Valid(text) {
			t.Errorf("%s", text)
		}
	})
}
