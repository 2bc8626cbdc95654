package e2e

import (
	"context"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

const adsMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

// rawCodec sends bytes as they are.
type rawCodec struct{ encoding.CodecV2 }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// What a client does wrong ends its own stream, with a status that says what to do;
// others do not notice.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr,
		"groups.key=[id]", "downstream.max_request_bytes=64KiB", "downstream.max_name_bytes=128",
		"downstream.first_message_timeout=500ms")
	witness := startEnvoy(t, r.addr, "witness", nil)
	complete := func() error {
		return first(witness.Has(cache.Endpoint, "a-cluster"), witness.Has(cache.Route, "a-route"))
	}
	eventually(t, patience, complete)

	node := &core.Node{Id: "witness"}
	cds := string(cache.Cluster)
	conn := dial(t, r.addr)
	for _, c := range []struct {
		name string
		send []*discovery.DeltaDiscoveryRequest
		raw  []byte
		code codes.Code
		says []string
	}{
		{name: "no node", send: []*discovery.DeltaDiscoveryRequest{{TypeUrl: cds}},
			code: codes.InvalidArgument, says: []string{"node", "default_group"}},
		{name: "no type", send: []*discovery.DeltaDiscoveryRequest{{Node: node}},
			code: codes.InvalidArgument, says: []string{"type_url"}},
		{name: "garbage", raw: []byte("this is not protobuf"),
			code: codes.Internal},
		{name: "another node", send: []*discovery.DeltaDiscoveryRequest{{Node: node, TypeUrl: cds}, {Node: &core.Node{Id: "other"}, TypeUrl: cds}},
			code: codes.Aborted, says: []string{"node", "new stream"}},
		{name: "a long name", send: []*discovery.DeltaDiscoveryRequest{{Node: node, TypeUrl: cds, ResourceNamesSubscribe: []string{strings.Repeat("x", 129)}}},
			code: codes.ResourceExhausted, says: []string{"max_name_bytes"}},
		{name: "a large request", send: []*discovery.DeltaDiscoveryRequest{{Node: node, TypeUrl: cds, ResourceNamesSubscribe: []string{strings.Repeat("x", 70<<10)}}},
			code: codes.ResourceExhausted, says: []string{"max_request_bytes"}},
		{name: "silence",
			code: codes.ResourceExhausted, says: []string{"no request within"}},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		var opts []grpc.CallOption
		if c.raw != nil {
			opts = append(opts, grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")}))
		}
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, adsMethod, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if c.raw != nil {
			_ = stream.SendMsg(c.raw)
		}
		for _, req := range c.send {
			_ = stream.SendMsg(req)
		}
		for err == nil {
			err = stream.RecvMsg(&discovery.DeltaDiscoveryResponse{})
		}
		cancel()
		st := status.Convert(err)
		if st.Code() != c.code {
			t.Errorf("%s: the stream ended with %v, not %v", c.name, err, c.code)
		}
		for _, says := range c.says {
			if !strings.Contains(st.Message(), says) {
				t.Errorf("%s: the status does not mention %q: %s", c.name, says, st.Message())
			}
		}
		if c.code == codes.Internal && st.Message() == "" {
			t.Errorf("%s: the status says nothing", c.name)
		}
	}

	// Methods that there are not.
	for _, method := range []string{
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/FetchAggregatedResources",
		"/envoy.service.nothing.v3.NothingDiscoveryService/StreamNothing",
		"/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources",
	} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := conn.Invoke(ctx, method, &discovery.DiscoveryRequest{}, &discovery.DiscoveryResponse{})
		cancel()
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s answered %v, not UNIMPLEMENTED", method, err)
		}
	}

	w.Set(cache.Cluster, "a-cluster", edsCluster("a-cluster", 2))
	eventually(t, patience, func() error { return first(complete(), witness.AtLeast(cache.Cluster, "a-cluster", 2)) })
	if err := witness.Sound(); err != nil {
		t.Error(err)
	}
	eventually(t, patience, func() error { return is("client streams of the relay", r.Count(), 1) })
}

// A client that is refused a type with a group of its own, here its secrets for want of room,
// keeps its stream, and its other types (NODE-14). What it is told, the log, the description
// of clients and the counts agree; who asks for all there is waits, and people know.
func TestOneTypeRefused(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.Set(cache.Cluster, "c", edsCluster("c", 1))
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr, "groups.max=1")
	a, b := openDelta(t, r.addr, "a"), openSotw(t, r.addr, "b")
	a.Wildcard(cache.Cluster)
	b.Watch(cache.Cluster, "c")
	eventually(t, patience, func() error { return first(a.Has(cache.Cluster, "c"), b.Has(cache.Cluster, "c")) })
	a.Subscribe(cache.Secret, "s")
	b.Watch(cache.Secret, "s")
	told := func() error {
		return first(a.Failed(cache.Secret, "s", codes.ResourceExhausted), b.Failed(cache.Secret, "s", codes.ResourceExhausted))
	}
	eventually(t, patience, told)
	w.Set(cache.Cluster, "c", edsCluster("c", 2))
	eventually(t, patience, func() error {
		return first(a.AtLeast(cache.Cluster, "c", 2), b.AtLeast(cache.Cluster, "c", 2))
	})
	if err := first(a.Sound(), b.Sound()); err != nil {
		t.Error(err)
	}

	refused := session.RefusedType{Type: "SDS", Reason: session.Overcrowded, Notice: session.NoticeErrors}
	if err := first(
		is("types refused", r.Summary().Refused[refused], 2), is("groups with clients", len(r.Summary().Groups), 1),
		is("lines", len(r.log.Lines("level=WARN", `msg="client refused a type"`, "reason=too_many", "raise groups.max")), 2),
		is("lines of an end", len(r.log.Lines("client stream ended"))+len(r.log.Lines(`"client refused"`)), 0),
	); err != nil {
		t.Error(err)
	}
	for _, c := range r.Clients() {
		for _, of := range c.Types {
			if (of.Type == cache.Secret) != strings.Contains(of.Refused, "raise groups.max") {
				t.Errorf("%s, %s: refused %q", c.Node, of.Type.Short(), of.Refused)
			}
		}
	}

	waits := openDelta(t, r.addr, "waits")
	waits.Wildcard(cache.Cluster)
	waits.Subscribe(cache.Secret, "*")
	refused.Notice = session.NoticeNothing
	eventually(t, patience, func() error {
		return first(is("types refused in silence", r.Summary().Refused[refused], 1),
			is("lines", len(r.log.Lines("level=WARN", "client refused a type, and waits", "node_id=waits")), 1))
	})
}
