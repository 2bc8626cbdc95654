package csds

import (
	"fmt"
	"io"
	"net/http"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Path is where the service is asked with POST and JSON, as the protocol has it for REST (CSDS-1).
const Path = "/v3/discovery:client_status"

// ServeHTTP answers a request in JSON. An empty one has no matchers.
func (s *Service) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	leave, err := s.Enter()
	if err != nil {
		refuse(w, err)
		return
	}
	defer leave()
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxRequest))
	if err != nil {
		http.Error(w, fmt.Sprintf("the request cannot be read: %v; it may have %d bytes", err, MaxRequest), http.StatusBadRequest)
		return
	}
	in := new(discovery.ClientStatusRequest)
	if len(body) > 0 {
		if err := protojson.Unmarshal(body, in); err != nil {
			http.Error(w, fmt.Sprintf("the request is no ClientStatusRequest in JSON: %v; an empty one asks for the relay's own view", err), http.StatusBadRequest)
			return
		}
	}
	a, err := s.answer(req.Context(), in)
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = a.json(w) // an error means that whoever asked is gone
}

// json writes the answer, one ClientConfig after the other, so that there is no second copy of it.
func (a *answer) json(w io.Writer) error {
	sep := `{"config":[`
	for _, c := range a.configs {
		if _, err := fmt.Fprintf(w, "%s\n%s", sep, c.json()); err != nil {
			return err
		}
		sep = ","
	}
	if sep != "," {
		_, err := io.WriteString(w, "{}\n")
		return err
	}
	_, err := io.WriteString(w, "\n]}\n")
	return err
}

// json is a ClientConfig. A client's metadata, and bodies, may have numbers and values that JSON has no words for:
// then only id and cluster are left of the node, and nothing of such a body, so that one does not spoil the answer.
func (c *clientConfig) json() []byte {
	m := new(discovery.ClientConfig)
	if err := proto.Unmarshal(slices.Concat(c.pieces...), m); err != nil {
		return []byte("{}") // the pieces are messages
	}
	text, err := protojson.Marshal(m)
	if err == nil {
		return text
	}
	m.Node = &core.Node{Id: m.GetNode().GetId(), Cluster: m.GetNode().GetCluster()}
	for _, g := range m.GetGenericXdsConfigs() {
		if _, err := protojson.Marshal(g.GetXdsConfig()); err != nil {
			g.XdsConfig = nil
		}
	}
	if text, err = protojson.Marshal(m); err != nil {
		return []byte("{}") // there is nothing else that could be wrong
	}
	return text
}

// refuse answers in HTTP what is a gRPC status.
func refuse(w http.ResponseWriter, err error) {
	code := http.StatusServiceUnavailable
	switch status.Code(err) {
	case codes.Unimplemented:
		code = http.StatusNotImplemented
	case codes.InvalidArgument:
		code = http.StatusBadRequest
	case codes.ResourceExhausted:
		code = http.StatusTooManyRequests
	}
	http.Error(w, status.Convert(err).Message(), code)
}
