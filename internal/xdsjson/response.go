package xdsjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/internal/readable"
)

// Writer turns resources into JSON, and remembers those that it wrote of late. It may be used by several goroutines.
type Writer struct {
	// ProtoNames: fields are called as in the proto; else their names are in lowerCamelCase.
	ProtoNames bool
	messages   *readable.Set

	// Two halves: when the young one is full, the old one is forgotten.
	mu         sync.Mutex
	young, old map[*byte]*written
	size       int // of the young ones, in bytes
}

// written is a resource that the first who needs it writes; the others wait for it.
type written struct {
	once sync.Once
	text []byte
	err  error
}

// kept bounds the resources whose text is remembered, together with that text, in bytes.
const kept = 64 << 20

// NewWriter returns a Writer that knows these messages.
func NewWriter(messages *readable.Set, protoNames bool) *Writer {
	return &Writer{ProtoNames: protoNames, messages: messages}
}

// Resource is a resource as JSON. body is its field in a DiscoveryResponse, in wire form: nobody may change either. What
// is remembered is known by the place of the body.
func (w *Writer) Resource(body []byte, remember bool) ([]byte, error) {
	if len(body) == 0 {
		return nil, fmt.Errorf("an empty resource")
	}
	if !remember {
		return w.write(body)
	}
	r := w.find(body)
	r.once.Do(func() { r.text, r.err = w.write(body) })
	return r.text, r.err
}

func (w *Writer) find(body []byte) *written {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.young[&body[0]]
	if r != nil {
		return r
	}
	if r = w.old[&body[0]]; r == nil {
		r = new(written)
	}
	if w.young == nil || w.size >= kept/2 {
		w.young, w.old, w.size = make(map[*byte]*written), w.young, 0
	}
	w.young[&body[0]] = r
	w.size += 4 * len(body) // the text is about three times as large
	return r
}

func (w *Writer) write(field []byte) ([]byte, error) {
	_, _, tag := protowire.ConsumeTag(field)
	if tag < 0 {
		return nil, protowire.ParseError(tag)
	}
	body, n := protowire.ConsumeBytes(field[tag:])
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	a := new(anypb.Any)
	if err := proto.Unmarshal(body, a); err != nil {
		return nil, fmt.Errorf("a resource: %w", err)
	}
	text, err := protojson.MarshalOptions{UseProtoNames: w.ProtoNames, Resolver: w.messages.Resolver(), AllowPartial: true}.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("a resource of type %s has no form in JSON: %s", a.GetTypeUrl(), strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0"))
	}
	var plain bytes.Buffer // protojson's spaces differ from build to build
	if err := json.Compact(&plain, text); err != nil {
		return nil, err
	}
	return plain.Bytes(), nil
}

// Head is what a response says of itself.
type Head struct{ Version, TypeURL, Nonce, Identifier string }

// Response is a response, in parts to be written one after the other. Those of resources are shared.
func (w *Writer) Response(h Head, resources [][]byte) [][]byte {
	name := func(camel, plain string) string {
		if w.ProtoNames {
			return plain
		}
		return camel
	}
	b := append([]byte(`{"`), name("versionInfo", "version_info")...)
	b = readable.AppendText(append(b, `":`...), h.Version)
	b = readable.AppendText(append(append(append(b, `,"`...), name("typeUrl", "type_url")...), `":`...), h.TypeURL)
	b = readable.AppendText(append(b, `,"nonce":`...), h.Nonce)
	if h.Identifier != "" {
		b = append(append(append(b, `,"`...), name("controlPlane", "control_plane")...), `":{"identifier":`...)
		b = append(readable.AppendText(b, h.Identifier), '}')
	}
	parts := make([][]byte, 0, 2*len(resources)+2)
	parts = append(parts, append(b, `,"resources":[`...))
	for i, r := range resources {
		if i > 0 {
			parts = append(parts, comma)
		}
		parts = append(parts, r)
	}
	return append(parts, end)
}

var comma, end = []byte(","), []byte("]}\n")
