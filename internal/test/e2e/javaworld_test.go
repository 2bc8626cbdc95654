package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// javaPath is how clients reach the control plane.
type javaPath struct {
	name    string
	relayed bool
	sets    []string
}

// javaPaths are without a relay, through one as it is by default, and through one
// that speaks SotW upstream. Of that only so much is asked as can work: this server
// answers no SotW request that names anything it lacks.
var javaPaths = []javaPath{
	{name: "direct"},
	{name: "relay", relayed: true},
	{name: "relay, SotW upstream", relayed: true, sets: []string{"upstream.mode=sotw"}},
}

// withoutSotw picks the paths of situations in which a name is asked for that the
// control plane lacks, or in which it comes back with other content under the
// versions that it had: to a request that says a version it has, it is silent.
func withoutSotw(p javaPath) bool { return len(p.sets) == 0 }

// overJava plays a situation on each path that is picked; nil picks all.
func overJava(t *testing.T, pick func(javaPath) bool, situation func(*testing.T, javaPath)) {
	t.Helper()
	buildJava(t)
	for _, p := range javaPaths {
		if pick == nil || pick(p) {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				situation(t, p)
			})
		}
	}
}

// To is the address of the control plane, or of a relay in front of it.
func (p javaPath) To(t *testing.T, cp *javaPlane, sets ...string) string {
	if !p.relayed {
		return cp.addr
	}
	return startRelay(t, cp.addr, slices.Concat(p.sets, sets)...).addr
}

// javaSoon is when a client has what there is: before a gRPC client's or an Envoy's
// own 15 s are over.
const javaSoon = 12 * time.Second

// javaWorld is what a group's snapshot is made of, with all types at one version,
// as Snapshot.create has it.
type javaWorld struct {
	t         testing.TB
	group     string
	version   int
	resources map[cache.TypeURL]map[string]proto.Message
}

func newJavaWorld(t testing.TB, group string) *javaWorld {
	w := &javaWorld{t: t, group: group, version: 1, resources: make(map[cache.TypeURL]map[string]proto.Message)}
	for _, u := range usualTypes {
		w.resources[u] = make(map[string]proto.Message)
	}
	return w
}

// service adds what it takes to reach a service, under the names that linear has.
func (w *javaWorld) service(name string, addresses ...string) {
	w.cluster(name+"-cluster", 1, addresses...)
	w.resources[cache.Route][name+"-route"] = routeTo(name+"-route", 1, name+"-cluster")
	w.resources[cache.Listener][name] = apiListener(name, 1, name+"-route")
}

// cluster adds a cluster and its endpoints.
func (w *javaWorld) cluster(name string, revision int, addresses ...string) {
	w.resources[cache.Cluster][name] = edsCluster(name, revision)
	w.resources[cache.Endpoint][name] = endpoints(name, revision, addresses...)
}

// drop takes a cluster and its endpoints away.
func (w *javaWorld) drop(cluster string) {
	delete(w.resources[cache.Cluster], cluster)
	delete(w.resources[cache.Endpoint], cluster)
}

// dropService takes away all that service adds.
func (w *javaWorld) dropService(name string) {
	w.drop(name + "-cluster")
	delete(w.resources[cache.Route], name+"-route")
	delete(w.resources[cache.Listener], name)
}

func (w *javaWorld) snapshot() javaSnapshot {
	s := javaSnapshot{group: w.group, version: strconv.Itoa(w.version)}
	for _, u := range usualTypes {
		for _, name := range slices.Sorted(maps.Keys(w.resources[u])) {
			s.resources = append(s.resources, w.resources[u][name])
		}
	}
	return s
}

// Publish gives the control plane the world as it is now.
func (w *javaWorld) Publish(cp *javaPlane) {
	w.t.Helper()
	w.version++
	cp.Snapshot(w.snapshot())
}

// Restart starts a control plane that has been killed, with the world as it is now.
// It counts its versions from 1 again.
func (w *javaWorld) Restart(cp *javaPlane) {
	w.t.Helper()
	w.version = 1
	cp.Start(w.snapshot())
}

// brief is how long one RPC may wait for a target that has not been found yet.
const brief = 200 * time.Millisecond

// briefly makes one RPC, which waits no longer than that.
func (a *app) briefly() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), brief)
	defer cancel()
	r, err := a.client.UnaryCall(ctx, &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
	return r.GetServerId(), err
}

// Finds complains unless an RPC is answered by a backend, soon.
func (a *app) Finds(name string) error {
	got, err := a.briefly()
	if err != nil {
		return fmt.Errorf("RPC to %s: %w", name, err)
	}
	return is("RPC answered by", got, name)
}

// Refuses complains if an RPC is answered.
func (a *app) Refuses() error {
	if by, err := a.briefly(); err == nil {
		return fmt.Errorf("an RPC is still answered, by %s", by)
	}
	return nil
}

// holds complains unless a Delta client has a name at a revision or a later one, and
// lacks if it has it at all. A server may send more than it was asked for.
func holds(d *deltaClient, u cache.TypeURL, name string, revision int) func() error {
	return func() error { return d.AtLeast(u, name, revision) }
}

func lacks(d *deltaClient, u cache.TypeURL, name string) error {
	if _, ok := d.Get(u, name); ok {
		return fmt.Errorf("%s still holds %s %q", d.name, u.Short(), name)
	}
	return nil
}

// sound complains of what a relay has said amiss. A control plane that sends what
// was not asked for is none of our business.
func (p javaPath) sound(t *testing.T, clients ...*deltaClient) {
	t.Helper()
	for _, c := range clients {
		if err := c.Sound(); p.relayed && err != nil {
			t.Error(err)
		}
	}
}

// nodeInEach has a Delta client say its node in every request, as Envoy does.
func nodeInEach(id string) grpc.DialOption { return thisNodeInEach(&core.Node{Id: id}) }

func thisNodeInEach(node *core.Node) grpc.DialOption {
	return grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := open(ctx, d, conn, method, opts...)
		return nodeStream{s, node}, err
	})
}

type nodeStream struct {
	grpc.ClientStream
	node *core.Node
}

func (s nodeStream) SendMsg(m any) error {
	m.(*discovery.DeltaDiscoveryRequest).Node = s.node
	return s.ClientStream.SendMsg(m)
}
