package session

import (
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A request is bounded in its wire form, before a message is made of it (VALID-8, threat T10): an empty value
// of two bytes takes a hundred as a message.

const (
	// leastWeight is how many bytes an element counts for at least: a name, a version, a value in a
	// node's metadata. It is about what it takes in memory beside its bytes.
	leastWeight = 64
	// maxNodeWeight bounds what the elements of a node count for. It is kept as long as the stream.
	maxNodeWeight = 4 * maxNode
	// maxDepth is how deep elements may lie in each other.
	maxDepth = 64
)

// Weigh refuses a request that would take much more memory as a message than it has bytes, or whose node or type
// is too large. limit bounds its weight: its bytes, where each element counts for at least 64. What is
// no message is left to the decoder.
func Weigh(request []byte, delta bool, limit int) *End {
	m := (*discovery.DiscoveryRequest)(nil).ProtoReflect().Descriptor()
	if delta {
		m = (*discovery.DeltaDiscoveryRequest)(nil).ProtoReflect().Descriptor()
	}
	var w scale
	node := 0
	all := w.weigh(m, request, 0, func(field protoreflect.Name, value []byte, weight int) {
		switch field {
		case "node": // several are merged
			node += len(value)
			w.node += weight
		case "type_url":
			w.longestType = max(w.longestType, len(value))
		}
	})
	switch {
	case w.longestType > maxTypeURL:
		return typeTooLong(w.longestType)
	case node > maxNode:
		return nodeTooLarge(node)
	case w.node > maxNodeWeight:
		return &End{OverLimit, fmt.Sprintf("node of %d bytes counts for %d, since each element counts for %d at least, and exceeds the limit of %d", node, w.node, leastWeight, maxNodeWeight)}
	case w.deep:
		return &End{OverLimit, fmt.Sprintf("a request has elements in each other, more than %d deep, or groups", maxDepth)}
	case all > limit:
		return &End{OverLimit, fmt.Sprintf("a request of %d bytes counts for %d, since each name, version or other element counts for %d at least, and exceeds the limit of %d; raise downstream.max_request_bytes", len(request), all, leastWeight, limit)}
	}
	return nil
}

// scale is what is found out of a request.
type scale struct {
	node, longestType int
	deep              bool // too deep
}

// weigh returns the weight of a message's elements. found, if it is not nil, is called with each of them.
func (s *scale) weigh(m protoreflect.MessageDescriptor, message []byte, depth int, found func(field protoreflect.Name, value []byte, weight int)) (all int) {
	if depth > maxDepth {
		s.deep = true
		return 0
	}
	var field protoreflect.FieldDescriptor
	for last := protowire.Number(0); len(message) > 0; {
		number, kind, size := consume(message)
		if size < 0 {
			s.deep = s.deep || kind == protowire.StartGroupType
			return all
		}
		if number != last {
			field, last = m.Fields().ByNumber(number), number
		}
		weight := max(size, leastWeight)
		if kind == protowire.BytesType && field != nil {
			_, _, tag := protowire.ConsumeTag(message)
			value, _ := protowire.ConsumeBytes(message[tag:])
			weight = max(weight, s.within(field, value, depth+1))
			if found != nil {
				found(field.Name(), value, weight)
			}
		}
		all += weight
		message = message[size:]
	}
	return all
}

// consume is protowire.ConsumeField without groups. No message of the protocol has any, and they may lie in each other as
// deep as the message is long.
func consume(message []byte) (number protowire.Number, kind protowire.Type, size int) {
	number, kind, tag := protowire.ConsumeTag(message)
	if tag < 0 || kind == protowire.StartGroupType {
		return number, kind, -1
	}
	value := protowire.ConsumeFieldValue(number, kind, message[tag:])
	if value < 0 {
		return number, kind, value
	}
	return number, kind, tag + value
}

// within is what a field's elements count for, and the field itself. A pair of a map without messages is one element.
func (s *scale) within(field protoreflect.FieldDescriptor, value []byte, depth int) int {
	plain := field.IsMap() && field.MapValue().Message() == nil
	if of := field.Message(); of != nil && !plain {
		return leastWeight + s.weigh(of, value, depth, nil)
	}
	return 0
}

func typeTooLong(size int) *End {
	return &End{OverLimit, fmt.Sprintf("type_url of %d bytes exceeds the limit of %d", size, maxTypeURL)}
}

func nodeTooLarge(size int) *End {
	return &End{OverLimit, fmt.Sprintf("node of %d bytes exceeds the limit of %d", size, maxNode)}
}
