package csds

import (
	"strings"
	"time"
	"unicode/utf8"

	admin "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	status "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/xds-relay/xds-relay/cache"
)

// Field numbers of ClientStatusResponse, of ClientConfig, and of its GenericXdsConfig.
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
)

// generic is one resource of an answer (CSDS-2).
type generic struct {
	typ           []byte // the field of its type (typeField)
	name, version string
	body          []byte // an Any; nil: none
	updated       time.Time
	config        status.ConfigStatus
	client        admin.ClientResourceStatus
	failure       *failure
}

// failure is why a resource, or its last version, is not accepted.
type failure struct {
	at      time.Time
	details string
}

// typeField is the same for all resources of a type.
func typeField(t cache.TypeURL) []byte { return text(nil, fieldTypeURL, string(t)) }

// append appends it as an element of a ClientConfig. scratch is for its fields, and is returned for the next one.
func (g *generic) append(to, scratch []byte) (_, _ []byte) {
	b := append(scratch[:0], g.typ...)
	b = text(b, fieldName, g.name)
	b = text(b, fieldVersion, g.version)
	if g.body != nil {
		b = field(b, fieldBody, g.body)
	}
	if !g.updated.IsZero() {
		b = message(b, fieldUpdated, timestamppb.New(g.updated))
	}
	b = number(b, fieldConfigStatus, int32(g.config))
	b = number(b, fieldClientStatus, int32(g.client))
	if f := g.failure; f != nil {
		b = message(b, fieldErrorState, f.state())
	}
	return field(to, fieldGeneric, b), b
}

func (f *failure) state() *admin.UpdateFailureState {
	s := &admin.UpdateFailureState{Details: strings.ToValidUTF8(f.details, "\uFFFD")}
	if !f.at.IsZero() {
		s.LastUpdateAttempt = timestamppb.New(f.at)
	}
	return s
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

func number(b []byte, n protowire.Number, v int32) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
}

func message(b []byte, n protowire.Number, m proto.Message) []byte {
	content, err := proto.MarshalOptions{AllowPartial: true, Deterministic: true}.Marshal(m)
	if err != nil || len(content) == 0 {
		return b // the former would be of text that is none, which no message here has
	}
	return field(b, n, content)
}
