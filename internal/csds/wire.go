package csds

import (
	"strings"
	"time"
	"unicode/utf8"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// Field numbers of ClientStatusResponse, of ClientConfig, of its GenericXdsConfig, and of what is in that.
const (
	fieldConfig = 1

	fieldNode    = 1
	fieldGeneric = 3
	fieldScope   = 4

	fieldTypeURL      = 1
	fieldName         = 2
	fieldVersion      = 3
	fieldBody         = 4
	fieldUpdated      = 5
	fieldConfigStatus = 6
	fieldClientStatus = 7
	fieldErrorState   = 8

	fieldAttempt = 2 // of an UpdateFailureState
	fieldDetails = 3

	fieldSeconds = 1 // of a Timestamp
	fieldNanos   = 2
)

// wire is protobuf's own form.
type wire struct {
	resource, part []byte // to be used again
}

func (*wire) node(n *core.Node) []byte {
	content, err := proto.MarshalOptions{AllowPartial: true, Deterministic: true}.Marshal(n)
	if err != nil || len(content) == 0 {
		return nil // the former would be of text that is none, which no node has that was received
	}
	return field(nil, fieldNode, content)
}

func (*wire) scope(s string) []byte                    { return text(nil, fieldScope, s) }
func (*wire) typ(t cache.TypeURL) []byte               { return text(nil, fieldTypeURL, string(t)) }
func (*wire) body(_ *readable.Set, body []byte) []byte { return body }

func (w *wire) generic(list []byte, g *generic) []byte {
	b := append(w.resource[:0], g.typ...)
	b = text(b, fieldName, g.name)
	b = text(b, fieldVersion, g.version)
	if g.body != nil {
		b = field(b, fieldBody, g.body)
	}
	b = w.stamp(b, fieldUpdated, g.updated)
	b = number(b, fieldConfigStatus, int64(g.config))
	b = number(b, fieldClientStatus, int64(g.client))
	if f := g.failure; f != nil {
		b = field(b, fieldErrorState, text(w.stamp(nil, fieldAttempt, f.at), fieldDetails, f.details))
	}
	w.resource = b
	return field(list, fieldGeneric, b)
}

// stamp appends a Timestamp, if there is one.
func (w *wire) stamp(b []byte, n protowire.Number, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	w.part = number(number(w.part[:0], fieldSeconds, t.Unix()), fieldNanos, int64(t.Nanosecond()))
	return field(b, n, w.part)
}

// text appends a string, if there is one. Names of some control planes are no text, and no decoder would take the
// answer with them.
func text(b []byte, n protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func field(b []byte, n protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), content)
}

func number(b []byte, n protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
}

// buffers are the whole message.
func (a *answer) buffers() (all mem.BufferSlice) {
	add := func(piece []byte) {
		if len(piece) > 0 {
			all = append(all, mem.SliceBuffer(piece))
		}
	}
	for _, c := range a.configs {
		head := protowire.AppendTag(nil, fieldConfig, protowire.BytesType)
		add(protowire.AppendVarint(head, uint64(c.size)))
		add(c.node)
		for _, list := range c.lists {
			add(list)
		}
		add(c.scope)
	}
	return all
}
