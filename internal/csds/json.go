package csds

import (
	"bufio"
	"fmt"
	"io"
	"net/http"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/readable"
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
	in := new(request)
	if len(body) > 0 {
		if err := in.fromJSON(body); err != nil {
			http.Error(w, fmt.Sprintf("the request is no ClientStatusRequest in JSON: %v; an empty one asks for the relay's own view", err), http.StatusBadRequest)
			return
		}
	}
	a, err := s.answer(req.Context(), in, asJSON{})
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = a.json(w) // an error means that whoever asked is gone
}

// asJSON is protobuf's form in JSON, as protojson has it. It is written by hand: an answer may have a million resources.
type asJSON struct{}

// node is a node. A client's metadata may have numbers and values that JSON has no words for: then only id and cluster
// are left, so that one client does not spoil the answer.
func (asJSON) node(n *core.Node) []byte {
	if n == nil {
		return nil
	}
	text, err := protojson.Marshal(n)
	if err != nil {
		text, err = protojson.Marshal(&core.Node{Id: n.GetId(), Cluster: n.GetCluster()})
	}
	if err != nil {
		return nil // there is nothing else that could be wrong
	}
	return text
}

func (asJSON) scope(s string) []byte      { return readable.AppendText(nil, s) }
func (asJSON) typ(t cache.TypeURL) []byte { return readable.AppendText(nil, string(t)) }

// body is a body. One that has no form in JSON is left out.
func (asJSON) body(set *readable.Set, body []byte) []byte { return set.JSON(body) }

func (asJSON) generic(list []byte, g *generic) []byte {
	if len(list) > 0 {
		list = append(list, ',')
	}
	list = append(append(list, `{"typeUrl":`...), g.typ...)
	if g.name != "" {
		list = readable.AppendText(append(list, `,"name":`...), g.name)
	}
	if g.version != "" {
		list = readable.AppendText(append(list, `,"versionInfo":`...), g.version)
	}
	if g.body != nil {
		list = append(append(list, `,"xdsConfig":`...), g.body...)
	}
	if !g.updated.IsZero() {
		list = readable.AppendTime(append(list, `,"lastUpdated":`...), g.updated)
	}
	if g.config != configUnknown {
		list = readable.AppendText(append(list, `,"configStatus":`...), configStatuses[g.config])
	}
	if g.client != clientUnknown {
		list = readable.AppendText(append(list, `,"clientStatus":`...), clientStatuses[g.client])
	}
	if g.failure != nil {
		list = g.failure.json(append(list, `,"errorState":`...))
	}
	return append(list, '}')
}

func (f *failure) json(b []byte) []byte {
	b = readable.AppendText(append(b, `{"details":`...), f.details)
	if !f.at.IsZero() {
		b = readable.AppendTime(append(b, `,"lastUpdateAttempt":`...), f.at)
	}
	return append(b, '}')
}

// json writes the answer, without another copy of it.
func (a *answer) json(to io.Writer) error {
	w := bufio.NewWriterSize(to, 32<<10) // it keeps the first error
	sep := `{"config":[`
	for i := range a.configs {
		_, _ = w.WriteString(sep + "\n")
		a.configs[i].json(w)
		sep = ","
	}
	end := "\n]}\n"
	if sep != "," {
		end = "{}\n"
	}
	_, _ = w.WriteString(end)
	return w.Flush()
}

func (c *clientConfig) json(w *bufio.Writer) {
	sep := "{"
	put := func(key string, value []byte) {
		_, _ = w.WriteString(sep + key)
		_, _ = w.Write(value)
		sep = ","
	}
	if len(c.node) > 0 {
		put(`"node":`, c.node)
	}
	for i, list := range c.lists {
		key := ""
		if i == 0 {
			key = `"genericXdsConfigs":[`
		}
		put(key, list)
	}
	if len(c.lists) > 0 {
		_ = w.WriteByte(']')
	}
	if len(c.scope) > 0 {
		put(`"clientScope":`, c.scope)
	}
	if sep == "{" {
		_ = w.WriteByte('{')
	}
	_ = w.WriteByte('}')
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
