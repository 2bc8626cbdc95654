package xdsjson

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// Request reads a DiscoveryRequest. Fields may have their names in lowerCamelCase or as in the proto, and unknown ones
// are ignored (REST-2). limit bounds the text, and the memory that its values take.
func Request(text []byte, limit int) (*discovery.DiscoveryRequest, *Mistake) {
	if len(text) > limit {
		return nil, &Mistake{TooLarge: true, Message: fmt.Sprintf("a request of %d bytes exceeds the limit of %d; raise downstream.max_request_bytes", len(text), limit)}
	}
	if m := weigh(text, MaxDepth, limit); m != nil {
		if m.TooLarge {
			m.Message += "; see downstream.max_request_bytes"
		}
		return nil, m
	}
	req := new(discovery.DiscoveryRequest)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: 2 * MaxDepth}).Unmarshal(text, req); err != nil {
		return nil, misread(err)
	}
	return req, nil
}

// place is where protojson says that a mistake is.
var place = regexp.MustCompile(`^\(line (\d+):(\d+)\): `)

// misread is an error of protojson without the values that it quotes. It begins with "proto:" and a space that differs from build to build.
func misread(err error) *Mistake {
	text := strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
	text = strings.TrimPrefix(text, "syntax error ")
	m := new(Mistake)
	if found := place.FindStringSubmatch(text); found != nil {
		m.Line, _ = strconv.Atoi(found[1])
		m.Column, _ = strconv.Atoi(found[2])
		text = text[len(found[0]):]
	}
	m.Message = Harmless(text)
	return m
}
