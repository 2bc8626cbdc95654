package session

import (
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The wire form of the part of a response that its client alone is sent. Its resources are
// shared, and the edge puts them in between.

// Field numbers of DeltaDiscoveryResponse and DiscoveryResponse.
const (
	fieldVersion   = 1 // in both
	fieldResources = 2
	fieldTypeURL   = 4
	fieldNonce     = 5

	deltaRemoved      = 6
	deltaControlPlane = 7
	deltaErrors       = 9

	sotwControlPlane = 6
	sotwErrors       = 7

	controlPlaneIdentifier = 1

	// Fields of Resource, of the google.protobuf.Duration in it, and of the Any around it:
	resourceTTL     = 6
	durationSeconds = 1
	durationNanos   = 2
	anyTypeURL      = 1
	anyValue        = 2
	wrapperType     = "type.googleapis.com/envoy.service.discovery.v3.Resource"
)

// Head returns the part of a response before its contents.
func (r *Response) Head() []byte {
	return r.AppendNonce(r.AppendFixed(make([]byte, 0, 256)))
}

// AppendFixed appends the part that is equal in all responses with the same contents.
func (r *Response) AppendFixed(head []byte) []byte {
	plane := protowire.Number(sotwControlPlane)
	if r.Delta {
		plane = deltaControlPlane
	}
	head = appendString(head, fieldVersion, r.Version)
	head = appendString(head, fieldTypeURL, string(r.Type))
	if r.Identifier != "" {
		head = protowire.AppendTag(head, plane, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(sizeOf(controlPlaneIdentifier, len(r.Identifier))))
		head = appendString(head, controlPlaneIdentifier, r.Identifier)
	}
	return head
}

// AppendNonce appends the nonce, in which each response differs.
func (r *Response) AppendNonce(head []byte) []byte { return appendString(head, fieldNonce, r.Nonce) }

// AppendRest appends removals and errors.
func (r *Response) AppendRest(b []byte) []byte {
	errors := protowire.Number(sotwErrors)
	if r.Delta {
		errors = deltaErrors
	}
	for _, name := range r.Removed {
		b = protowire.AppendTag(b, deltaRemoved, protowire.BytesType)
		b = protowire.AppendString(b, name)
	}
	for _, e := range r.Errors {
		b = appendError(b, errors, e)
	}
	return b
}

// maxTTL is the greatest size of the field of a TTL, in bytes.
const maxTTL = 24

// Limited returns the bytes before and after a Resource message of n bytes that has a TTL. SotW
// has the message inside of an Any (TTL-6).
func Limited(delta bool, n int, ttl time.Duration) (head, tail []byte) {
	tail = protowire.AppendTag(nil, resourceTTL, protowire.BytesType)
	var d []byte
	if s := int64(ttl / time.Second); s > 0 {
		d = protowire.AppendVarint(protowire.AppendTag(d, durationSeconds, protowire.VarintType), uint64(s))
	}
	if ns := int64(ttl % time.Second); ns > 0 {
		d = protowire.AppendVarint(protowire.AppendTag(d, durationNanos, protowire.VarintType), uint64(ns))
	}
	tail = protowire.AppendBytes(tail, d)

	if n += len(tail); !delta {
		return Wrapped(n), tail
	}
	head = protowire.AppendTag(nil, fieldResources, protowire.BytesType)
	return protowire.AppendVarint(head, uint64(n)), tail
}

// Wrapped returns the bytes before a Resource message of n bytes on SotW, which has it inside of an Any.
func Wrapped(n int) (head []byte) {
	wrapper := appendString(nil, anyTypeURL, wrapperType)
	wrapper = protowire.AppendTag(wrapper, anyValue, protowire.BytesType)
	wrapper = protowire.AppendVarint(wrapper, uint64(n))
	head = protowire.AppendTag(nil, fieldResources, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(wrapper)+n))
	return append(head, wrapper...)
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendError(b []byte, field protowire.Number, e *discovery.ResourceError) []byte {
	enc, err := proto.Marshal(e)
	if err != nil {
		// The message is upstream's and not valid UTF-8 after all: the name is sent without it,
		// since the name matters more.
		e = &discovery.ResourceError{ResourceName: e.GetResourceName()}
		if enc, err = proto.Marshal(e); err != nil {
			return b
		}
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, enc)
}
