package xdsjson

import (
	"bytes"
	"encoding/json"
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xds-relay/xds-relay/internal/readable"
)

// maxDepthOfAnswers is how deep objects and lists of a response may be in each other, as in files (FS-5).
const maxDepthOfAnswers = 100

// perByte is how much memory the values of a response may take for each byte that it may have: JSON is about that much
// larger than what it stands for.
const perByte = 4

// AppendRequest writes a request, with the names of fields that Envoy writes: those of the proto.
func AppendRequest(b []byte, req *discovery.DiscoveryRequest) ([]byte, error) {
	return protojson.MarshalOptions{UseProtoNames: true}.MarshalAppend(b, req)
}

// ReadResponse reads a response. Nothing in it is left out: a message of an unknown type, or with an unknown field, is a
// mistake, since what the relay passes on would lack it (REST-16). limit bounds the text.
func ReadResponse(text []byte, limit int, messages *readable.Set) (*discovery.DiscoveryResponse, *Mistake) {
	if len(text) > limit {
		return nil, &Mistake{TooLarge: true, Message: fmt.Sprintf("is larger than %d bytes", limit)}
	}
	if m := weigh(text, maxDepthOfAnswers, perByte*limit); m != nil {
		return nil, m
	}
	resp := new(discovery.DiscoveryResponse)
	err := protojson.UnmarshalOptions{Resolver: messages.Resolver(), RecursionLimit: 2 * maxDepthOfAnswers}.Unmarshal(text, resp)
	if err == nil {
		return resp, nil
	}
	m := misread(err)
	if !IsObject(text) || !json.Valid(text) {
		m.Message = "is no JSON object: " + m.Message
	}
	return nil, m
}

// IsObject reports whether a text begins as an object does.
func IsObject(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{"))
}
