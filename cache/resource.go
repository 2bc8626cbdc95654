package cache

import (
	"bytes"
	"iter"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Resource is one version of one resource, immutable from the moment it is made
// and shared by every client. Its wire form is encoded here, once (VALID-7).
type Resource struct {
	// Name is the resource's own name, an opaque byte string (NAME-1) in its canonical spelling
	// (NAME-8), as are the Aliases and EndpointName.
	Name string
	// Spelled is the name as upstream spells it, which the wire form has.
	Spelled string
	// Version is the version that clients see: the fingerprint of the content (RECON-1), or for a
	// negative answer the upstream's own string.
	Version string
	// Aliases are the other names it answers to (NAME-3), and Glob is the glob that covers it, if none of
	// these is (NAME-11); "": there is none.
	Aliases []string
	Glob    string
	// Hash is HashOf the name.
	Hash uint32
	// Negative: it has no body and says that its aliases do not exist (NAME-6).
	Negative bool
	// DoNotCache: it is kept no longer than somebody subscribes to it, and never on disk (VALID-5).
	DoNotCache bool
	// EndpointName is, for a Cluster of type EDS, the name under which its
	// endpoints are asked for (ORDER-6). Empty for everything else.
	EndpointName string
	// GoesStale: it is a ClusterLoadAssignment that its client empties unless it is sent it again in
	// time (TTL-13).
	GoesStale bool

	// element is this resource as one element of a DeltaDiscoveryResponse's
	// `resources`: tag, length, Resource message.
	element []byte
	// content is the Resource message in it, heading the part of that with name and
	// version alone, which is a heartbeat (TTL-4).
	content, heading []byte
	// body is the part of element that holds the Any with its tag and length.
	// DiscoveryResponse.resources has the same field number as
	// Resource.resource, so these bytes serve SotW as they are.
	body []byte
	// sum is this resource's share of a set's digest.
	sum Digest
}

// Field numbers of envoy.service.discovery.v3.Resource, and of `resources` in
// both response messages.
const (
	fieldResources     = 2 // (Delta)DiscoveryResponse.resources
	fieldVersion       = 1
	fieldBody          = 2
	fieldName          = 3
	fieldAliases       = 4
	fieldCacheControl  = 7
	fieldQualifiedName = 8
	fieldMetadata      = 9
	fieldAnyTypeURL    = 1
	fieldAnyValue      = 2
)

// NameOf is the name of a resource as received, from whichever of the two
// equivalent fields holds it; ok is false if both or neither do (NAME-2). Whatever
// spelling was received, it is canonical (NAME-8).
func NameOf(r *discovery.Resource) (name string, ok bool) {
	return Canonical(spelling(r)), (r.GetName() == "") != (r.GetResourceName().GetName() == "")
}

// spelling is the name as received.
func spelling(r *discovery.Resource) string { return r.GetName() + r.GetResourceName().GetName() }

// Names yields the resource's name, its aliases, and the glob that covers it.
func (r *Resource) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		if yield(r.Name) {
			r.others()(yield)
		}
	}
}

// others yields the names that lead to the resource, beside its own.
func (r *Resource) others() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, alias := range r.Aliases {
			if !yield(alias) {
				return
			}
		}
		if r.Glob != "" {
			yield(r.Glob)
		}
	}
}

// NewResource encodes a resource received for a type. The body's bytes leave exactly as they came
// (VALID-2); aliases, metadata, cache control and unknown fields of the wrapper go along (VALID-3,
// VALID-4), in the form of name in which they came (NAME-2). The upstream's version is replaced by
// the fingerprint. A TTL is left out, which a client reads as "never expires" (TTL-7); it differs
// from client to client (TTL-5) and is added behind the shared bytes.
func NewResource(t TypeURL, r *discovery.Resource, f Fingerprint) *Resource {
	name, _ := NameOf(r)
	res := &Resource{
		Name: name, Spelled: spelling(r), Aliases: Canonicals(r.GetAliases()), Negative: r.GetResource() == nil,
		DoNotCache: r.GetResource() != nil && r.GetCacheControl().GetDoNotCache(),
	}
	if glob := GlobOf(name); !res.Negative && !slices.Contains(res.Aliases, glob) {
		res.Glob = glob
	}
	if res.Negative {
		res.Version = r.GetVersion()
	} else {
		res.Version = f.Of(r.GetResource().GetTypeUrl(), r.GetResource().GetValue(), r.GetAliases())
	}
	api := t.V3()
	if api == Cluster && !res.Negative {
		res.EndpointName = Canonical(endpointName(r.GetResource().GetValue()))
	}
	res.GoesStale = api == Endpoint && goesStale(r.GetResource().GetValue())
	res.Hash = HashOf(name)
	res.sum = digestOf(name, res.Version)
	res.encode(r)
	return res
}

// Element returns the bytes that stand for this resource in a
// DeltaDiscoveryResponse. They are shared: nobody may change them.
func (r *Resource) Element() []byte { return r.element }

// Body returns the bytes that stand for this resource in a DiscoveryResponse.
// They are shared: nobody may change them.
func (r *Resource) Body() []byte { return r.body }

// Content returns the Resource message, which other fields may follow. It is
// shared: nobody may change it.
func (r *Resource) Content() []byte { return r.content }

// Heading is Content without the body: the message that says that nothing changed
// but the TTL that follows (TTL-4). It is shared: nobody may change it.
func (r *Resource) Heading() []byte { return r.heading }

// Respelled returns the resource under another spelling of its name, which has the same length, for
// one client (NAME-9). Its body is not changed, whatever name that has (VALID-2).
func (r *Resource) Respelled(name string) *Resource {
	c := *r
	at := bytes.Index(r.heading, []byte(r.Spelled))
	if at < 0 || len(name) != len(r.Spelled) {
		return r
	}
	c.Name, c.Spelled = name, name
	front, back := len(r.element)-len(r.content), len(r.heading)
	c.element = bytes.Clone(r.element)
	c.content = c.element[front:]
	c.heading, c.body = c.content[:back:back], c.content[back:back+len(r.body):back+len(r.body)]
	copy(c.content[at:], name)
	return &c
}

// Size is the memory its wire form takes, in bytes.
func (r *Resource) Size() int { return len(r.element) }

func (r *Resource) encode(in *discovery.Resource) {
	var front, back []byte
	if qualified := in.GetResourceName(); qualified != nil {
		front = appendMessage(front, fieldQualifiedName, qualified)
	} else {
		front = appendField(front, fieldName, r.Spelled)
	}
	if r.Version != "" {
		front = appendField(front, fieldVersion, r.Version)
	}
	for _, alias := range in.GetAliases() {
		back = appendField(back, fieldAliases, alias)
	}
	if in.GetCacheControl() != nil {
		back = appendMessage(back, fieldCacheControl, in.GetCacheControl())
	}
	if in.GetMetadata() != nil {
		back = appendMessage(back, fieldMetadata, in.GetMetadata())
	}
	back = append(back, in.ProtoReflect().GetUnknown()...)

	bodySize := 0
	if in.GetResource() != nil {
		bodySize = protowire.SizeTag(fieldBody) + protowire.SizeBytes(anySize(in.GetResource()))
	}
	size := len(front) + bodySize + len(back)
	e := make([]byte, 0, size+1+protowire.SizeVarint(uint64(size)))
	e = protowire.AppendTag(e, fieldResources, protowire.BytesType)
	e = protowire.AppendVarint(e, uint64(size))
	start := len(e)
	e = append(e, front...)
	from := len(e)
	if in.GetResource() != nil {
		e = appendBody(e, in.GetResource())
	}
	to := len(e)
	e = append(e, back...)
	r.element, r.content, r.heading, r.body = e, e[start:], e[start:from:from], e[from:to:to]
}

// appendBody appends the Any of a resource, with its tag and length: the one copy that is
// made of its value.
func appendBody(e []byte, body *anypb.Any) []byte {
	e = protowire.AppendTag(e, fieldBody, protowire.BytesType)
	e = protowire.AppendVarint(e, uint64(anySize(body)))
	if body.GetTypeUrl() != "" {
		e = appendField(e, fieldAnyTypeURL, body.GetTypeUrl())
	}
	if len(body.GetValue()) > 0 {
		e = appendField(e, fieldAnyValue, body.GetValue())
	}
	return append(e, body.ProtoReflect().GetUnknown()...)
}

// anySize is what an Any takes without its tag and length, in bytes.
func anySize(body *anypb.Any) int {
	size := len(body.ProtoReflect().GetUnknown())
	if n := len(body.GetTypeUrl()); n > 0 {
		size += protowire.SizeTag(fieldAnyTypeURL) + protowire.SizeBytes(n)
	}
	if n := len(body.GetValue()); n > 0 {
		size += protowire.SizeTag(fieldAnyValue) + protowire.SizeBytes(n)
	}
	return size
}

// appendMessage encodes a sub-message. The messages come from a successful
// decode, so that encoding them cannot fail.
func appendMessage(b []byte, field protowire.Number, m proto.Message) []byte {
	enc, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return b
	}
	return appendField(b, field, enc)
}

// appendField encodes a length-delimited field.
func appendField[T string | []byte](b []byte, field protowire.Number, value T) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return append(protowire.AppendVarint(b, uint64(len(value))), value...)
}
