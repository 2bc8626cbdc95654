package wire

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The methods that clients call.
const (
	DeltaMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	SotWMethod  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
)

// Subscription is what a client asks for, of one type. It does not change once used:
// many clients share one.
type Subscription struct {
	TypeURL string
	// Names are the resources; none is the wildcard of a type that has one.
	Names []string
	// Versions are what the client has already (Delta).
	Versions map[string]string

	// What Prepare has made of it: the first request, without the node, and the part of
	// every SotW request that lists the names.
	first, names []byte
}

// Field numbers.
const (
	deltaNode, deltaType, deltaNonce             = 1, 2, 6
	sotwVersion, sotwNode, sotwNames             = 1, 2, 3
	sotwType, sotwNonce                          = 4, 5
	anyTypeURL, anyValue                         = 1, 2
	resourceVersion, resourceBody, resourceName  = 1, 2, 3
	deltaResources, deltaTypeURL, deltaRespNonce = 2, 4, 5
	sotwInfo, sotwResources                      = 1, 2
)

// Prepare encodes a subscription for one variant.
func (s *Subscription) Prepare(delta bool) {
	for _, n := range s.Names {
		s.names = appendString(s.names, sotwNames, n)
	}
	if delta {
		s.first = mustMarshal(&discovery.DeltaDiscoveryRequest{TypeUrl: s.TypeURL, ResourceNamesSubscribe: s.Names, InitialResourceVersions: s.Versions})
	} else {
		s.first = mustMarshal(&discovery.DiscoveryRequest{TypeUrl: s.TypeURL, ResourceNames: s.Names})
	}
}

// First is the first request of a subscription on a stream; node, if not empty, is
// the client's id.
func (s *Subscription) First(delta bool, node string) []byte {
	if node == "" {
		return s.first
	}
	field := protowire.Number(sotwNode)
	if delta {
		field = deltaNode
	}
	n := mustMarshal(&core.Node{Id: node, UserAgentName: "xds-relay-bench"})
	b := make([]byte, 0, len(s.first)+len(n)+8)
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendBytes(b, n)
	return append(b, s.first...)
}

// AppendAck appends the ACK of a response.
func (s *Subscription) AppendAck(b []byte, delta bool, r Response) []byte {
	if delta {
		b = appendString(b, deltaType, s.TypeURL)
		return appendString(b, deltaNonce, string(r.Nonce))
	}
	b = appendString(b, sotwVersion, string(r.Version))
	b = append(b, s.names...)
	b = appendString(b, sotwType, s.TypeURL)
	return appendString(b, sotwNonce, string(r.Nonce))
}

// IsAck says whether a request has a nonce. The bench's clients subscribe to
// nothing in such a request.
func IsAck(delta bool, request []byte) bool {
	field := protowire.Number(sotwNonce)
	if delta {
		field = deltaNonce
	}
	for len(request) > 0 {
		number, typ, n := protowire.ConsumeTag(request)
		if n < 0 {
			return false
		}
		if number == field {
			return true
		}
		size := protowire.ConsumeFieldValue(number, typ, request[n:])
		if size < 0 {
			return false
		}
		request = request[n+size:]
	}
	return false
}

// Element is a resource as it stands in a response: in a Delta one with its name and
// version, in a SotW one without.
func Element(delta bool, name, version, typeURL string, body []byte) []byte {
	any := make([]byte, 0, len(body)+len(typeURL)+12)
	any = appendString(any, anyTypeURL, typeURL)
	any = protowire.AppendTag(any, anyValue, protowire.BytesType)
	any = protowire.AppendBytes(any, body)
	if !delta {
		b := protowire.AppendTag(make([]byte, 0, len(any)+8), sotwResources, protowire.BytesType)
		return protowire.AppendBytes(b, any)
	}
	r := make([]byte, 0, len(any)+len(name)+len(version)+16)
	r = appendString(r, resourceVersion, version)
	r = protowire.AppendTag(r, resourceBody, protowire.BytesType)
	r = protowire.AppendBytes(r, any)
	r = appendString(r, resourceName, name)
	b := protowire.AppendTag(make([]byte, 0, len(r)+8), deltaResources, protowire.BytesType)
	return protowire.AppendBytes(b, r)
}

// Head is a response without resources.
func Head(delta bool, version, typeURL, nonce string) []byte {
	var b []byte
	if !delta {
		b = appendString(b, sotwInfo, version)
	}
	b = appendString(b, deltaTypeURL, typeURL)
	return appendString(b, deltaRespNonce, nonce)
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func mustMarshal(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err) // names and versions of the bench's own making
	}
	return b
}
