package session

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// FuzzUpstreamResponse: whatever responses a control plane sends, the relay does not panic, answers each of a type
// that it has asked for exactly once (UP-4), keeps nothing that was not sent (G1), and what its clients read is
// consistent.
//
// The input is a byte that chooses the variant, and responses as protobuf, each after its length. The clients' side is
// in FuzzUpstreamProgram, which is a hundred times slower.
func FuzzUpstreamResponse(f *testing.F) {
	for _, c := range [][]proto.Message{
		{delta(cache.Cluster, "1", named("a", "1"), named("b", "1")), delta(cache.Cluster, "2", named("a", "2"))},
		{delta(cache.Endpoint, "1", named("a", "1"), named("c", "1")), &discovery.DeltaDiscoveryResponse{TypeUrl: string(cache.Endpoint), Nonce: "2", RemovedResources: []string{"a", "b"}}},
		{delta(foo, "1", &discovery.Resource{Name: "y", Aliases: []string{"x"}, Version: "1", Ttl: durationpb.New(time.Second), Resource: plain("y")}), delta(foo, "2", &discovery.Resource{Name: "y", Version: "1", Ttl: durationpb.New(time.Hour)})},
		{delta(foo, "1", &discovery.Resource{Name: "x", Aliases: []string{"x"}}), delta("bar", "1", named("a", "1")), delta(cache.Cluster, "")},
		{delta(cache.Cluster, "1", named("a", "1"), named("a", "2"), &discovery.Resource{Name: "b", Resource: plain("b")})},
		{&discovery.DeltaDiscoveryResponse{TypeUrl: string(cache.Endpoint), Nonce: "1", ResourceErrors: []*discovery.ResourceError{{ResourceName: &discovery.ResourceName{Name: "a"}}}}},
	} {
		f.Add(input(f, 0, c...))
	}
	for _, c := range [][]proto.Message{
		{sotw(cache.Cluster, "1", "a", "b"), sotw(cache.Cluster, "2", "a")},
		{sotw(cache.Endpoint, "1", "a"), sotw(cache.Endpoint, "2"), sotw(foo, "3", "x")},
	} {
		f.Add(input(f, 1, c...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 1<<9 {
			return
		}
		g := newGuest(t, data[0]&1 == 1)
		for data, n := data[1:], 0; len(data) > 1 && n < 4; n++ {
			size := min(int(binary.BigEndian.Uint16(data)), len(data)-2)
			g.says(data[2 : 2+size])
			data = data[2+size:]
		}
		g.look()
	})
}

// foo is a type that the relay knows nothing of.
const foo = cache.TypeURL("type.googleapis.com/foo")

func delta(t cache.TypeURL, nonce string, resources ...*discovery.Resource) proto.Message {
	return &discovery.DeltaDiscoveryResponse{TypeUrl: string(t), Nonce: nonce, Resources: resources}
}

func named(name, version string) *discovery.Resource {
	body := plain(name)
	body.TypeUrl = string(cache.Cluster)
	return &discovery.Resource{Name: name, Version: version, Resource: body}
}

// plain is a body whose first field is its name.
func plain(name string) *anypb.Any {
	return &anypb.Any{TypeUrl: string(foo), Value: append([]byte{0x0a, byte(len(name))}, name...)}
}

func sotw(t cache.TypeURL, nonce string, names ...string) proto.Message {
	r := &discovery.DiscoveryResponse{TypeUrl: string(t), Nonce: nonce, VersionInfo: nonce}
	for _, name := range names {
		body := plain(name)
		body.TypeUrl = string(t)
		r.Resources = append(r.Resources, body)
	}
	return r
}

func input(f *testing.F, variant byte, messages ...proto.Message) []byte {
	f.Helper()
	data := []byte{variant}
	for _, m := range messages {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		data = append(binary.BigEndian.AppendUint16(data, uint16(len(b))), b...)
	}
	return data
}

// guest is a relay, and a control plane that says anything.
type guest struct {
	*desk
	sotw  bool
	subs  []*fanout.Subscription
	sent  map[string]bool // bodies
	again map[cache.TypeURL]bool
}

func newGuest(t *testing.T, sotw bool) *guest {
	mode := ModeDelta
	if sotw {
		mode = ModeSotW
	}
	g := &guest{desk: newDesk(t, Config{SettleCap: time.Second, Entries: []Entry{{Name: "up", Mode: mode}}}), sotw: sotw, sent: make(map[string]bool), again: make(map[cache.TypeURL]bool)}
	for t, names := range map[cache.TypeURL][]string{cache.Cluster: {fanout.Wildcard}, cache.Endpoint: {"a", "b"}, foo: {"x", "y"}} {
		s := g.hub.Subscribe(t, fanout.NewSubscriber(func() {}))
		s.Delta(names, nil, g.now)
		g.subs = append(g.subs, s)
	}
	g.settle()
	return g
}

// says has the control plane send a response, if the bytes are one.
func (g *guest) says(data []byte) {
	g.t.Helper()
	var m proto.Message = new(discovery.DeltaDiscoveryResponse)
	if g.sotw {
		m = new(discovery.DiscoveryResponse)
	}
	if proto.Unmarshal(data, m) != nil {
		return // gRPC would end the stream
	}
	g.sends(m)
	r, stream := Decode(m, cache.Fingerprint{}), g.id
	asked := g.core.Asks(stream, r.TypeURL)
	g.core.Receive(stream, r, g.now)
	g.apply()
	nack, _ := g.core.Applied(stream, r, g.now)
	answers := 0
	for _, written := range g.settle() {
		if req := written.(interface {
			GetTypeUrl() string
			GetResponseNonce() string
		}); r.Nonce != "" && req.GetResponseNonce() == r.Nonce && req.GetTypeUrl() == string(r.TypeURL) {
			answers++
		}
	}
	waits := g.sotw && nack != "" && g.again[r.TypeURL] // the same rejection waits a while (NACK-7)
	g.again[r.TypeURL] = nack != ""
	switch {
	case g.id != stream, waits, r.Nonce == "":
	case asked && answers != 1, answers > 1:
		g.t.Fatalf("a response of %q with nonce %q is answered %d times", r.TypeURL, r.Nonce, answers)
	}
	g.now = g.now.Add(time.Second)
	g.settle()
	g.apply()
}

// sends notes what is sent.
func (g *guest) sends(m proto.Message) {
	switch m := m.(type) {
	case *discovery.DeltaDiscoveryResponse:
		for _, r := range m.GetResources() {
			g.sent[string(r.GetResource().GetValue())] = true
		}
	case *discovery.DiscoveryResponse:
		for _, body := range m.GetResources() {
			g.sent[string(body.GetValue())] = true
			wrapper := new(discovery.Resource)
			if body.MessageIs(wrapper) && body.UnmarshalTo(wrapper) == nil {
				g.sent[string(wrapper.GetResource().GetValue())] = true
			}
		}
	}
}

func (g *guest) apply() {
	for _, e := range g.core.Effects() {
		e.Apply(g.hub)
	}
}

// look reads what clients can read.
func (g *guest) look() {
	g.t.Helper()
	for _, s := range g.subs {
		s.Read(func(v fanout.View) {
			if broken := v.Check(); len(broken) > 0 {
				g.t.Errorf("not so: %s", strings.Join(broken, "; "))
			}
			for _, id := range v.Names() {
				if r := v.Resource(v.Name(id)); r != nil && !g.sent[string(value(r))] {
					g.t.Errorf("%q is %q, which nobody has sent", v.Name(id), r.Body())
				}
			}
		})
	}
}

// value is what the body of a resource holds.
func value(r *cache.Resource) []byte {
	in := new(discovery.DiscoveryResponse)
	if err := proto.Unmarshal(r.Body(), in); err != nil || len(in.GetResources()) != 1 {
		return nil
	}
	return in.GetResources()[0].GetValue()
}
