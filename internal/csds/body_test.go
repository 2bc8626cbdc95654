package csds

import (
	"os/exec"
	"strings"
	"testing"

	xdstype "github.com/cncf/xds/go/xds/type/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// secret is in all that must not be shown.
const secret = "canary-of-bodies"

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func inline(text string) *core.DataSource {
	return &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: text}}
}

// leakySocket is a transport socket with a secret at each place where one may be.
func leakySocket(t *testing.T) *core.TransportSocket {
	t.Helper()
	return &core.TransportSocket{Name: "tls", ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: packed(t, &tls.UpstreamTlsContext{Sni: "shown.example", CommonTlsContext: &tls.CommonTlsContext{
		TlsCertificates: []*tls.TlsCertificate{{
			CertificateChain: &core.DataSource{Specifier: &core.DataSource_Filename{Filename: "/shown.crt"}},
			PrivateKey:       &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: []byte(secret)}}, Password: inline(secret),
		}},
		ValidationContextType: &tls.CommonTlsContext_ValidationContext{ValidationContext: &tls.CertificateValidationContext{TrustedCa: inline(secret)}},
	}})}}
}

// leaky is a Cluster with a secret at each place where one may be.
func leaky(t *testing.T) *anypb.Any {
	t.Helper()
	unknown := &anypb.Any{TypeUrl: "type.googleapis.com/nobody.knows.This", Value: []byte(secret)}
	untyped, err := structpb.NewStruct(map[string]any{"password": secret})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{
		Name: "shown",
		TransportSocketMatches: []*cluster.Cluster_TransportSocketMatch{
			{Name: "known", TransportSocket: leakySocket(t)},
			{Name: "unknown", TransportSocket: &core.TransportSocket{Name: "x", ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: unknown}}},
			{Name: "untyped", TransportSocket: &core.TransportSocket{Name: "x", ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: packed(t, &xdstype.TypedStruct{Value: untyped})}}},
		},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{
			"a": unknown,
			"b": packed(t, &tls.Secret{Name: "key", Type: &tls.Secret_TlsCertificate{TlsCertificate: &tls.TlsCertificate{CertificateChain: inline(secret)}}}),
			"c": packed(t, packed(t, unknown)),
			"d": packed(t, &core.Address{}),
		},
		Metadata: &core.Metadata{TypedFilterMetadata: map[string]*anypb.Any{"a": unknown}},
	}
	c.ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, byte(len(secret))})
	c.ProtoReflect().SetUnknown(append(c.ProtoReflect().GetUnknown(), secret...))
	return packed(t, c)
}

// TestBodies: of a body what may be secret is left out, wherever it is, and the rest is shown (CSDS-5).
func TestBodies(t *testing.T) {
	body := leaky(t)
	if n := strings.Count(string(body.GetValue()), secret); n < 8 {
		t.Fatalf("the body has %d secrets", n)
	}
	b := newBodies(t)
	text := string(b.of(cache.NewResource(cache.Cluster, &discovery.Resource{Name: "shown", Resource: body}, cache.Fingerprint{})))
	if strings.Contains(text, secret) {
		t.Errorf("a secret is shown: %q", text)
	}
	for _, shown := range []string{"shown.example", "/shown.crt", "unknown", "untyped", "envoy.config.core.v3.Address"} {
		if !strings.Contains(text, shown) {
			t.Errorf("%s is not shown: %q", shown, text)
		}
	}
	a := new(anypb.Any)
	if err := proto.Unmarshal([]byte(text), a); err != nil {
		t.Fatal(err)
	}
	if _, err := a.UnmarshalNew(); err != nil {
		t.Error(err)
	}
}

// TestNoBody: what cannot be looked into is not shown at all.
func TestNoBody(t *testing.T) {
	nested := packed(t, &core.Address{})
	for range 17 { // one more than may be
		nested = packed(t, nested)
	}
	for name, body := range map[string]*anypb.Any{
		"unknown":                  {TypeUrl: "type.googleapis.com/nobody.knows.This", Value: []byte(secret)},
		"broken":                   {TypeUrl: string(cache.Cluster), Value: []byte("\xff")},
		"Secret":                   packed(t, &tls.Secret{Name: "key"}),
		"a Secret of another host": {TypeUrl: "example.org/" + strings.TrimPrefix(string(cache.Secret), "type.googleapis.com/"), Value: packed(t, &tls.Secret{Name: "key"}).GetValue()},
		"deep":                     nested,
		"none":                     nil,
	} {
		r := cache.NewResource(cache.Cluster, &discovery.Resource{Name: "a", Resource: body}, cache.Fingerprint{})
		if shown := newBodies(t).of(r); shown != nil && name != "deep" || strings.Contains(string(shown), "Address") {
			t.Errorf("%s: %q is shown", name, shown)
		}
	}
	if b := newBodies(t); b.of(nil) != nil {
		t.Error("something is shown of nothing")
	}
}

// TestBodiesAsTheyCame: a body without anything that may be secret is shown byte by byte.
func TestBodiesAsTheyCame(t *testing.T) {
	body := packed(t, &cluster.Cluster{Name: "a", Metadata: &core.Metadata{TypedFilterMetadata: map[string]*anypb.Any{"a": packed(t, &core.Address{})}}})
	body.Value = append(body.Value, 0x0a, 1, 'b') // the name once more: a decoder would write it once
	r := cache.NewResource(cache.Cluster, &discovery.Resource{Name: "a", Resource: body}, cache.Fingerprint{})
	shown := new(anypb.Any)
	if err := proto.Unmarshal(newBodies(t).of(r), shown); err != nil || !proto.Equal(shown, body) {
		t.Errorf("%v is shown as %v, %v", body, shown, err)
	}
}

// TestNothingLinked: the program does not have the generated code of what it shows, which takes megabytes.
func TestNothingLinked(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/xds-relay/xds-relay/cmd/xds-relay").Output()
	if err != nil {
		t.Skip("there is no go command: ", err)
	}
	for _, not := range []string{"envoy/service/status/v3", "envoy/admin/v3", "envoy/config/listener/v3", "envoy/extensions/"} {
		if strings.Contains(string(out), "github.com/envoyproxy/go-control-plane/"+not) {
			t.Errorf("%s is linked into the program", not)
		}
	}
}

func newBodies(t *testing.T) *bodies {
	t.Helper()
	set, err := readable.Load()
	if err != nil {
		t.Fatal(err)
	}
	return &bodies{set: set, form: new(wire), secret: func(t cache.TypeURL) bool { return t == cache.Secret }, shown: make(map[*cache.Resource][]byte)}
}
