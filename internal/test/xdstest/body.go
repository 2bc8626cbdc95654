package xdstest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Fingerprint computes the version a relay gives a resource (RECON-1). Whoever imports this package sets it to the
// relay's own function; importing that one here would keep its package from using this one in its tests.
var Fingerprint func(typeURL string, value []byte, aliases []string) string

// sameServer is the control plane that a resource came from.
var sameServer = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}

// Body is the Any of a resource whose response has that type URL; nil if it is bodyless.
func (r Resource) Body(typeURL string) (*anypb.Any, error) {
	if r.Bodyless {
		return nil, nil
	}
	if r.TypeURL != "" {
		typeURL = r.TypeURL
	}
	m := newBody(typeURL, r.Name, r.Label)
	if c, ok := m.(*clusterv3.Cluster); ok && r.EDS {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: r.Service, EdsConfig: sameServer}
	} else if r.EDS {
		return nil, fmt.Errorf("resource %s: {eds} is for clusters", r)
	}
	if e, ok := m.(*endpointv3.ClusterLoadAssignment); ok && r.Stale {
		e.Policy = &endpointv3.ClusterLoadAssignment_Policy{EndpointStaleAfter: durationpb.New(time.Minute)}
	} else if r.Stale {
		return nil, fmt.Errorf("resource %s: {stale} is for endpoints", r)
	}
	if m == nil {
		return &anypb.Any{TypeUrl: typeURL, Value: []byte(r.Name + "=" + r.Label)}, nil
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return &anypb.Any{TypeUrl: typeURL, Value: value}, err
}

// newBody puts the label where it does no harm: a valid message of that type, in a field no relay reads. Nil for a type of the tests' own.
func newBody(typeURL, name, label string) proto.Message {
	switch ShortName(current(typeURL)) { // fields have the numbers that they had in v2
	case "LDS":
		return &listenerv3.Listener{Name: name, StatPrefix: label}
	case "CDS":
		return &clusterv3.Cluster{Name: name, AltStatName: label}
	case "RDS":
		return &routev3.RouteConfiguration{Name: name, InternalOnlyHeaders: []string{label}}
	case "EDS":
		locality := &corev3.Locality{SubZone: label}
		return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{Locality: locality}}}
	case "SDS":
		data := &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: label}}
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{Secret: data}}}
	case "RTDS":
		return &runtimev3.Runtime{Name: name, Layer: &structpb.Struct{Fields: map[string]*structpb.Value{"label": structpb.NewStringValue(label)}}}
	case "SRDS":
		key := &routev3.ScopedRouteConfiguration_Key_Fragment{
			Type: &routev3.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: label},
		}
		return &routev3.ScopedRouteConfiguration{Name: name, Key: &routev3.ScopedRouteConfiguration_Key{
			Fragments: []*routev3.ScopedRouteConfiguration_Key_Fragment{key},
		}}
	case "VHDS":
		return &routev3.VirtualHost{Name: name, Domains: []string{label}}
	case "ECDS":
		config, _ := anypb.New(wrapperspb.String(label)) // marshalling a string wrapper cannot fail
		return &corev3.TypedExtensionConfig{Name: name, TypedConfig: config}
	case "LEDS":
		return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_EndpointName{EndpointName: label}}
	}
	return nil
}

// readBody fills in what Body wrote. The name is empty where the type has none. False: not a body of ours.
func (r *Resource) readBody(body *anypb.Any) bool {
	if strings.HasPrefix(body.GetTypeUrl(), testPrefix) {
		i := strings.LastIndexByte(string(body.GetValue()), '=')
		if i >= 0 {
			r.Name, r.Label = string(body.GetValue()[:i]), string(body.GetValue()[i+1:])
		}
		return i >= 0
	}
	m, err := (&anypb.Any{TypeUrl: current(body.GetTypeUrl()), Value: body.GetValue()}).UnmarshalNew()
	if err != nil {
		return false
	}
	switch m := m.(type) {
	case *listenerv3.Listener:
		r.Name, r.Label = m.GetName(), m.GetStatPrefix()
	case *clusterv3.Cluster:
		r.Name, r.Label = m.GetName(), m.GetAltStatName()
		r.EDS, r.Service = m.GetType() == clusterv3.Cluster_EDS, m.GetEdsClusterConfig().GetServiceName()
	case *routev3.RouteConfiguration:
		r.Name, r.Label = m.GetName(), strings.Join(m.GetInternalOnlyHeaders(), ",")
	case *endpointv3.ClusterLoadAssignment:
		r.Name, r.Stale = m.GetClusterName(), m.GetPolicy().GetEndpointStaleAfter() != nil
		for _, e := range m.GetEndpoints() {
			r.Label = e.GetLocality().GetSubZone()
		}
	case *tlsv3.Secret:
		r.Name, r.Label = m.GetName(), m.GetGenericSecret().GetSecret().GetInlineString()
	case *runtimev3.Runtime:
		r.Name, r.Label = m.GetName(), m.GetLayer().GetFields()["label"].GetStringValue()
	case *routev3.ScopedRouteConfiguration:
		r.Name = m.GetName()
		for _, f := range m.GetKey().GetFragments() {
			r.Label = f.GetStringKey()
		}
	case *routev3.VirtualHost:
		r.Name, r.Label = m.GetName(), strings.Join(m.GetDomains(), ",")
	case *corev3.TypedExtensionConfig:
		var label wrapperspb.StringValue
		err = m.GetTypedConfig().UnmarshalTo(&label)
		r.Name, r.Label = m.GetName(), label.GetValue()
	case *endpointv3.LbEndpoint:
		r.Label = m.GetEndpointName()
	default:
		return false
	}
	return err == nil
}

// fingerprint is the version a relay gives this resource.
func (r Resource) fingerprint(typeURL string) (string, error) {
	body, err := r.Body(typeURL)
	if err != nil {
		return "", err
	}
	return fingerprint(body, r.Aliases)
}

func fingerprint(body *anypb.Any, aliases []string) (string, error) {
	if Fingerprint == nil {
		return "", fmt.Errorf("xdstest.Fingerprint is not set: set it to the relay's own function before playing")
	}
	return Fingerprint(body.GetTypeUrl(), body.GetValue(), slices.Sorted(slices.Values(aliases))), nil
}
