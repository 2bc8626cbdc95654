package e2e

import (
	"maps"
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/cache"
)

// envoy is a Delta client that behaves as an Envoy does: all clusters and all
// listeners, then the endpoints and routes that these name. A cluster warms until
// its endpoints have come after it.
type envoy struct {
	*deltaClient

	// Habits; set before Start.
	//
	// withhold delays the ACK of clusters until all of them are warm, as Envoy
	// does with a type it has paused.
	withhold bool
	// silent never asks again for endpoints that are subscribed already, as Envoy
	// does in Delta: it relies on ORDER-4.
	silent bool

	// Guarded by the client's lock.
	warming  map[string]bool // EDS names
	withheld []string        // nonces
	warmed   int             // clusters that have become warm
	lateAcks int
}

// startEnvoy runs an Envoy until the test ends; habits may be nil.
func startEnvoy(t testing.TB, target, name string, habits func(*envoy), opts ...grpc.DialOption) *envoy {
	t.Helper()
	e := &envoy{deltaClient: newDelta(t, target, name, opts...), warming: make(map[string]bool)}
	e.follow = e.followUp
	if habits != nil {
		habits(e)
	}
	e.Open()
	e.Wildcard(cache.Cluster)
	return e
}

// followUp asks for what an accepted response refers to.
func (e *envoy) followUp(r *discovery.DeltaDiscoveryResponse) (withhold bool) {
	switch u := cache.TypeURL(r.GetTypeUrl()); u {
	case cache.Cluster:
		e.followClusters(r)
		if e.withhold && len(e.warming) > 0 {
			e.withheld = append(e.withheld, r.GetNonce())
			withhold = true
		}
		if !e.of(cache.Listener).requested {
			e.listen()
		}
	case cache.Endpoint:
		for _, res := range r.GetResources() {
			e.warm(res.GetName())
		}
		for _, name := range r.GetRemovedResources() {
			e.warm(name)
		}
		if len(e.warming) == 0 {
			for _, nonce := range e.withheld {
				e.ack(cache.Cluster, nonce)
				e.lateAcks++
			}
			e.withheld = nil
		}
	case cache.Listener:
		e.align(cache.Route, e.routesOfListeners())
	}
	return withhold
}

func (e *envoy) warm(name string) {
	if e.warming[name] {
		delete(e.warming, name)
		e.warmed++
	}
}

// listen asks for all listeners, which Envoy does once it has its clusters.
func (e *envoy) listen() {
	s := e.of(cache.Listener)
	s.wildcard, s.opening = true, true
	e.send(s, &discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Listener)})
}

func (e *envoy) followClusters(r *discovery.DeltaDiscoveryResponse) {
	var again []string
	for _, res := range r.GetResources() {
		name, ok := edsNameIn(res.GetResource().GetValue())
		if !ok {
			continue
		}
		e.warming[name] = true
		if e.of(cache.Endpoint).names[name] && !e.silent {
			again = append(again, name)
		}
	}
	if len(again) > 0 {
		e.subscribe(cache.Endpoint, again)
	}
	wanted := make(map[string]bool)
	for _, h := range e.of(cache.Cluster).held {
		if name, ok := edsNameIn(h.body); ok {
			wanted[name] = true
		}
	}
	for name := range e.warming {
		if !wanted[name] {
			delete(e.warming, name)
		}
	}
	e.align(cache.Endpoint, wanted)
}

func (e *envoy) routesOfListeners() map[string]bool {
	wanted := make(map[string]bool)
	for _, h := range e.of(cache.Listener).held {
		if name := routeNameOf(h.body); name != "" {
			wanted[name] = true
		}
	}
	return wanted
}

// align makes the subscribed names of a type those that are wanted.
func (e *envoy) align(u cache.TypeURL, wanted map[string]bool) {
	s := e.of(u)
	var more, less []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !s.names[name] {
			more = append(more, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.names)) {
		if !wanted[name] {
			less = append(less, name)
		}
	}
	if len(more) > 0 {
		e.subscribe(u, more)
	}
	if len(less) > 0 {
		e.unsubscribe(u, less)
	}
}

// Warm complains unless so many clusters have become warm and none is warming.
func (e *envoy) Warm(clusters int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return first(
		is(e.name+" clusters still warming", len(e.warming), 0),
		is(e.name+" clusters that became warm", e.warmed, clusters),
	)
}
