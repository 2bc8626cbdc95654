package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// probe is a Delta stream on which a test says what it likes, without a client's
// good manners.
type probe struct {
	t      testing.TB
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node   string
}

func startProbe(t testing.TB, target, node string) *probe {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(dial(t, target)).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &probe{t, stream, node}
}

// end is the name of a secret that is always there. A server that handles a
// stream's requests in turn has answered all others once it answers for this one.
const end = "end"

func endMark() proto.Message { return &tls.Secret{Name: end} }

// Says sends requests and returns what was answered before the end mark's answer,
// and the last nonce. Each answer is type, +name for what came, -name for what went.
func (p *probe) Says(requests ...*discovery.DeltaDiscoveryRequest) (answers []string, nonce string) {
	p.t.Helper()
	for _, r := range append(requests, subscribe(cache.Secret, end)) {
		p.send(r)
	}
	for {
		r, err := p.stream.Recv()
		if err != nil {
			return append(answers, "end: "+err.Error()), nonce
		}
		if u := cache.TypeURL(r.GetTypeUrl()); u == cache.Secret {
			p.send(ack(u, r.GetNonce()))
			return answers, nonce
		}
		nonce = r.GetNonce()
		answers = append(answers, spell(r))
	}
}

func (p *probe) send(r *discovery.DeltaDiscoveryRequest) {
	if p.node != "" && r.Node == nil {
		r.Node = &core.Node{Id: p.node}
	}
	_ = p.stream.Send(r) // what is wrong is said to the receiver
}

func spell(r *discovery.DeltaDiscoveryResponse) string {
	var names []string
	for _, res := range r.GetResources() {
		names = append(names, "+"+res.GetName())
	}
	for _, name := range r.GetRemovedResources() {
		names = append(names, "-"+name)
	}
	slices.Sort(names)
	return cache.TypeURL(r.GetTypeUrl()).Short() + " " + strings.Join(names, " ")
}

func subscribe(u cache.TypeURL, names ...string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: string(u), ResourceNamesSubscribe: names}
}

func unsubscribe(u cache.TypeURL, names ...string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: string(u), ResourceNamesUnsubscribe: names}
}

func ack(u cache.TypeURL, nonce string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: string(u), ResponseNonce: nonce}
}

func nack(u cache.TypeURL, nonce string) *discovery.DeltaDiscoveryRequest {
	r := ack(u, nonce)
	r.ErrorDetail = &statuspb.Status{Code: 3, Message: "no"}
	return r
}

// Hears complains unless exactly this was answered.
func (p *probe) Hears(claim string, want []string, requests ...*discovery.DeltaDiscoveryRequest) (nonce string) {
	p.t.Helper()
	got, nonce := p.Says(requests...)
	p.t.Logf("%s: %q", claim, got)
	if !slices.Equal(got, want) {
		p.t.Errorf("%s: it answers %q, not %q", claim, got, want)
	}
	return nonce
}

var nothing []string

// sotwProbe is the same in SotW.
type sotwProbe struct {
	t      testing.TB
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	nonces map[cache.TypeURL]string
}

func startSotwProbe(t testing.TB, target string) *sotwProbe {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(dial(t, target)).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &sotwProbe{t, stream, make(map[cache.TypeURL]string)}
}

func (p *sotwProbe) send(u cache.TypeURL, version string, names []string) {
	_ = p.stream.Send(&discovery.DiscoveryRequest{ // what is wrong is said to the receiver
		TypeUrl: string(u), VersionInfo: version, ResourceNames: names, ResponseNonce: p.nonces[u],
	})
}

// Hears asks for names of a type, which acknowledges its last response, and complains
// unless exactly this is answered before the end mark's answer. The mark itself is
// answered each time because no version of it is said.
func (p *sotwProbe) Hears(claim, want string, u cache.TypeURL, version string, names ...string) {
	p.t.Helper()
	if u != cache.Secret {
		p.send(u, version, names)
	}
	p.send(cache.Secret, "", []string{end})
	var got []string
	for {
		r, err := p.stream.Recv()
		if err != nil {
			p.t.Fatalf("%s: %v", claim, err)
		}
		u := cache.TypeURL(r.GetTypeUrl())
		p.nonces[u] = r.GetNonce()
		if u == cache.Secret {
			break
		}
		got = append(got, u.Short())
		for _, res := range r.GetResources() {
			got = append(got, "+"+nameIn(res.GetValue()))
		}
	}
	p.t.Logf("%s: %q", claim, got)
	if err := is(claim, strings.Join(got, " "), want); err != nil {
		p.t.Error(err)
	}
}

// What java-control-plane says, mostly in Delta, which the rules UP-2, UP-7, UP-9, UP-19
// and RECON-13 are made for. It is no fault of the relay if this fails, but a
// reason to read those rules again.
func TestJava_OnTheWire(t *testing.T) {
	t.Parallel()
	buildJava(t)
	world := func(version string, resources ...proto.Message) javaSnapshot {
		return javaSnapshot{"one", version, append(resources, endMark())}
	}
	one := func(answer string) []string { return []string{answer} }
	edsOf := func(names ...string) (all []proto.Message) {
		for _, name := range names {
			all = append(all, endpoints(name, 1, "127.0.0.1:1"))
		}
		return all
	}
	cdsOf := func(names ...string) (all []proto.Message) {
		for _, name := range names {
			all = append(all, staticCluster(name, 1))
		}
		return all
	}

	t.Run("full-state types", func(t *testing.T) {
		cp := startJava(t, byNothing, world("1", cdsOf("a", "b", "c")...))
		p := startProbe(t, cp.addr, "")
		n := p.Hears("one name is answered with all", one("CDS +a +b +c"), subscribe(cache.Cluster, "a"))
		p.Hears("an ACK with silence", nothing, ack(cache.Cluster, n))
		p.Hears("another name with silence", nothing, subscribe(cache.Cluster, "b"))
		p.Hears("a subscribe again with silence", nothing, subscribe(cache.Cluster, "b"))
		p.Hears("an unsubscribe with silence", nothing, unsubscribe(cache.Cluster, "b"))
		p.Hears("an unsubscribe and a subscribe with silence", nothing, subscribe(cache.Cluster, "b"))
		p.Hears("a wildcard after names with silence", nothing, subscribe(cache.Cluster, "*"))
		p.Hears("a missing name with silence", nothing, subscribe(cache.Cluster, "d"))

		cp.Snapshot(world("2", cdsOf("a", "c")...))
		p.Hears("a name subscribed again is not removed when it goes", nothing)
		p.Hears("nor when it is asked for once more", nothing, unsubscribe(cache.Cluster, "b"), subscribe(cache.Cluster, "b"))
		cp.Snapshot(world("3", cdsOf("a")...))
		n = p.Hears("a name left alone is removed when it goes", one("CDS -c"))
		p.Hears("once", nothing, ack(cache.Cluster, n), subscribe(cache.Cluster, "c"))
		cp.Snapshot(world("4", cdsOf("a", "b", "c", "d")...))
		n = p.Hears("what comes back is announced, asked for or not", one("CDS +b +c +d"))
		p.send(ack(cache.Cluster, n))

		p.Hears("unsubscribed", nothing, unsubscribe(cache.Cluster, "a", "d"))
		changed := []proto.Message{staticCluster("a", 2), staticCluster("b", 1), staticCluster("c", 1), staticCluster("d", 1)}
		cp.Snapshot(world("5", changed...))
		n = p.Hears("what changes is announced though it was unsubscribed", one("CDS +a"))
		p.Hears("and nothing else is", nothing, ack(cache.Cluster, n))
		cp.Snapshot(world("6", changed[:3]...))
		p.Hears("what was unsubscribed is not removed", nothing)

		again := startProbe(t, cp.addr, "")
		r := subscribe(cache.Cluster, "a")
		r.InitialResourceVersions = map[string]string{"gone": "1", "b": "1"}
		again.Hears("a new stream is sent everything whatever it has, and told nothing that has gone", one("CDS +a +b +c"), r)
	})

	t.Run("types by name", func(t *testing.T) {
		cp := startJava(t, byNothing, world("1", edsOf("a", "b")...))
		p := startProbe(t, cp.addr, "")
		n := p.Hears("a name is answered with itself", one("EDS +a"), subscribe(cache.Endpoint, "a"))
		p.Hears("a subscribe before the ACK with silence", nothing, subscribe(cache.Endpoint, "a"))
		p.Hears("for ever", nothing, ack(cache.Endpoint, n))
		n = p.Hears("after it with the name again", one("EDS +a"), subscribe(cache.Endpoint, "a"))
		p.send(ack(cache.Endpoint, n))
		p.Hears("an unsubscribe with silence", nothing, unsubscribe(cache.Endpoint, "a"))
		n = p.Hears("a subscribe after it with the name", one("EDS +a"), subscribe(cache.Endpoint, "a"))
		p.send(ack(cache.Endpoint, n))
		both := subscribe(cache.Endpoint, "a")
		both.ResourceNamesUnsubscribe = []string{"a"}
		n = p.Hears("a name in both lists is subscribed", one("EDS +a"), both)
		p.send(ack(cache.Endpoint, n))
		p.Hears("a missing name with silence", nothing, subscribe(cache.Endpoint, "late"))
		cp.Snapshot(world("2", edsOf("a", "b", "late")...))
		n = p.Hears("when it is created, it comes", one("EDS +late"))
		p.send(ack(cache.Endpoint, n))

		cp.Snapshot(world("3", edsOf("b")...))
		n = p.Hears("what goes is removed", one("EDS -a -late"))
		p.Hears("what has gone is not removed again", nothing, ack(cache.Endpoint, n), subscribe(cache.Endpoint, "late"))
		cp.Snapshot(world("4", edsOf("a", "b", "late")...))
		n = p.Hears("what comes back is announced only if subscribed again", one("EDS +late"))
		p.send(ack(cache.Endpoint, n))
		n = p.Hears("and when it is", one("EDS +a"), subscribe(cache.Endpoint, "a"))
		p.send(ack(cache.Endpoint, n))

		p.Hears("a subscribe to nothing means nothing", nothing, subscribe(cache.Endpoint))
		p.Hears("a wildcard is no name of anything", nothing, subscribe(cache.Endpoint, "*"))

		n = p.Hears("b", one("EDS +b"), subscribe(cache.Endpoint, "b"))
		for range 3 {
			n = p.Hears("a NACK is answered with the same at once", one("EDS +b"), nack(cache.Endpoint, n))
		}
		p.send(ack(cache.Endpoint, n))
		got, _ := p.Says(ack(cache.Endpoint, n))
		if len(got) != 1 || !strings.HasPrefix(got[0], "end: ") {
			t.Errorf("a second ACK of one response: it answers %q", got)
		}
		t.Logf("a second ACK of one response: %q", got)
	})

	t.Run("an empty type, and types it does not know", func(t *testing.T) {
		cp := startJava(t, byNothing, world("1"))
		p := startProbe(t, cp.addr, "")
		p.Hears("nothing is said of an empty type", nothing, subscribe(cache.Cluster), subscribe(cache.Listener, "*"), subscribe(cache.Route, "a"))
		got, _ := p.Says(subscribe(cache.TypeURL("type.googleapis.com/envoy.service.runtime.v3.Runtime"), "r"))
		if len(got) != 1 || !strings.HasPrefix(got[0], "end: ") {
			t.Errorf("an unknown type: it answers %q", got)
		}
		t.Logf("an unknown type: %q", got)
	})

	t.Run("the node of each request chooses", func(t *testing.T) {
		of := func(id string) javaSnapshot {
			return javaSnapshot{id, "1", append(edsOf("e-"+id), append(cdsOf(id), endMark())...)}
		}
		cp := startJava(t, byNodeID, of("east"), of("west"))
		p := startProbe(t, cp.addr, "east")
		n := p.Hears("it has its own", one("CDS +east"), subscribe(cache.Cluster))
		p.send(ack(cache.Cluster, n))
		without := func(r *discovery.DeltaDiscoveryRequest) *discovery.DeltaDiscoveryRequest {
			r.Node = &core.Node{}
			return r
		}
		p.Hears("a type's first request without a node is silent", nothing, without(subscribe(cache.Endpoint, "e-east")))
		n = p.Hears("with it, it is answered", one("EDS +e-east"), subscribe(cache.Endpoint, "e-east"))
		p.Hears("an ACK without a node is taken", nothing, without(ack(cache.Endpoint, n)))
		changed := javaSnapshot{"east", "2", []proto.Message{staticCluster("east", 2), endpoints("e-east", 2, "127.0.0.1:2"), endMark()}}
		cp.Snapshot(changed)
		n = p.Hears("and ends all news of the type, which other types go on having", one("CDS +east"))
		p.send(ack(cache.Cluster, n))
		n = p.Hears("until the next request of the type with a node", one("EDS +e-east"), unsubscribe(cache.Endpoint, "other"))
		p.send(ack(cache.Endpoint, n))
	})

	t.Run("SotW", func(t *testing.T) {
		cp := startJava(t, byNothing, world("1", append(edsOf("a", "b"), cdsOf("a", "b")...)...))
		p := startSotwProbe(t, cp.addr)
		p.Hears("names that are all there", "EDS +a +b", cache.Endpoint, "", "a", "b")
		p.Hears("one that is missing silences all", "", cache.Endpoint, "", "a", "b", "late")
		p.Hears("and the type is silent", "", cache.Endpoint, "1", "a", "b", "late")
		cp.Snapshot(world("2", append(edsOf("a", "b", "late"), cdsOf("a", "b")...)...))
		p.Hears("until all are there", "EDS +a +b +late", cache.Secret, "")

		p.Hears("asked again", "", cache.Endpoint, "2", "a", "b", "late")
		cp.Snapshot(world("3", edsOf("a", "b")...))
		cp.Snapshot(world("4", append(edsOf("a", "b", "late"), cdsOf("a")...)...))
		p.Hears("what went and came back between two requests ends all news of the type", "", cache.Secret, "")
		p.Hears("up to the next request", "EDS +a +b +late", cache.Endpoint, "2", "a", "b", "late")

		again := startSotwProbe(t, cp.addr)
		again.Hears("a new stream that says the version is believed, whatever process it had it from", "", cache.Cluster, "4")
		again.Hears("and is answered if it says none", "CDS +a", cache.Cluster, "")
	})

	t.Run("a health check is answered", func(t *testing.T) {
		cp := startJava(t, byNothing, world("1"))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := healthpb.NewHealthClient(dial(t, cp.addr)).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err := is("health check", status.Code(err), codes.Unimplemented); err != nil {
			t.Error(err)
		}
	})

	t.Run("versions are those of a process", func(t *testing.T) {
		w := world("1", cdsOf("a")...)
		cp := startJava(t, byNothing, w)
		versions := make(map[string]bool)
		for range 2 {
			startProbe(t, cp.addr, "").Hears("all", one("CDS +a"), subscribe(cache.Cluster))
			cp.Kill()
			cp.Start(w)
		}
		for _, line := range cp.Wire("< Cluster") {
			_, version, _ := strings.Cut(line, "set=")
			versions[version] = true
		}
		if len(versions) != 2 {
			t.Errorf("the same bytes have the versions %v in two processes", versions)
		}
	})
}
