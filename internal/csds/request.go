package csds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// request is a ClientStatusRequest. Its node, which says who asks, is not read.
type request struct {
	matchers []*matcher.NodeMatcher
	excludes bool // exclude_resource_contents
}

// Field numbers of a ClientStatusRequest.
const (
	fieldMatchers = 1
	fieldExcludes = 3
)

// fromWire reads it in wire form.
func (r *request) fromWire(data []byte) error {
	*r = request{}
	for len(data) > 0 {
		n, kind, tag := protowire.ConsumeTag(data)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(n, kind, data[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		value := data[tag : tag+size]
		data = data[tag+size:]
		switch {
		case n == fieldMatchers && kind == protowire.BytesType:
			content, _ := protowire.ConsumeBytes(value)
			m := new(matcher.NodeMatcher)
			if err := proto.Unmarshal(content, m); err != nil {
				return err
			}
			r.matchers = append(r.matchers, m)
		case n == fieldExcludes && kind == protowire.VarintType:
			excludes, _ := protowire.ConsumeVarint(value)
			r.excludes = excludes != 0
		}
	}
	return nil
}

// fromJSON reads it as JSON, with either spelling of the names of fields.
func (r *request) fromJSON(text []byte) error {
	var in struct {
		Matchers  []json.RawMessage `json:"nodeMatchers"`
		Matchers2 []json.RawMessage `json:"node_matchers"`
		Node      json.RawMessage   `json:"node"`
		Excludes  bool              `json:"excludeResourceContents"`
		Excludes2 bool              `json:"exclude_resource_contents"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	*r = request{excludes: in.Excludes || in.Excludes2}
	for i, text := range append(in.Matchers, in.Matchers2...) {
		m := new(matcher.NodeMatcher)
		if err := protojson.Unmarshal(text, m); err != nil {
			return fmt.Errorf("nodeMatchers[%d]: %w", i, err)
		}
		r.matchers = append(r.matchers, m)
	}
	return nil
}
