package demo

import (
	"context"
	"maps"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// deltaStream is one stream of a Delta client. As Envoy does, it asks for all
// listeners and clusters, and by name for the routes and endpoints they lead to.
type deltaStream struct {
	client *client
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	asked  map[cache.TypeURL]map[string]bool
	node   bool // has been sent
}

func (c *client) streamDelta(ctx context.Context, service discovery.AggregatedDiscoveryServiceClient) error {
	stream, err := service.DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	c.setConnected(true)
	s := &deltaStream{client: c, stream: stream, asked: make(map[cache.TypeURL]map[string]bool)}
	for _, t := range types {
		if err := s.send(s.first(t)); err != nil {
			return err
		}
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, request := range s.take(r) {
			if err := s.send(request); err != nil {
				return err
			}
		}
	}
}

// send sends a request, if there is one.
func (s *deltaStream) send(r *discovery.DeltaDiscoveryRequest) error {
	if r == nil {
		return nil
	}
	if !s.node {
		r.Node, s.node = s.client.node(), true
	}
	return s.stream.Send(r)
}

// first is a type's first request, with the versions of what the client kept from
// the stream before.
func (s *deltaStream) first(t cache.TypeURL) *discovery.DeltaDiscoveryRequest {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	var r *discovery.DeltaDiscoveryRequest
	if t == cache.Listener || t == cache.Cluster {
		r = &discovery.DeltaDiscoveryRequest{TypeUrl: string(t)} // no names: the wildcard
	} else if r = s.interest(t); r == nil {
		return nil
	}
	r.InitialResourceVersions = make(map[string]string)
	for k, h := range s.client.held {
		if k.typ == t {
			r.InitialResourceVersions[k.name] = h.version
		}
	}
	s.client.visit.versions += len(r.InitialResourceVersions)
	return r
}

// interest subscribes to names that are referred to now, and unsubscribes those
// that no longer are; nil if there are none. The caller holds mu.
func (s *deltaStream) interest(t cache.TypeURL) *discovery.DeltaDiscoveryRequest {
	wanted, asked := s.client.referred(t), s.asked[t]
	r := &discovery.DeltaDiscoveryRequest{TypeUrl: string(t)}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !asked[name] {
			r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if !wanted[name] {
			r.ResourceNamesUnsubscribe = append(r.ResourceNamesUnsubscribe, name)
			delete(s.client.held, key{t, name})
		}
	}
	s.asked[t] = wanted
	if len(r.ResourceNamesSubscribe)+len(r.ResourceNamesUnsubscribe) == 0 {
		return nil
	}
	return r
}

// take takes in a response, and returns what is to be said to it.
func (s *deltaStream) take(r *discovery.DeltaDiscoveryResponse) []*discovery.DeltaDiscoveryRequest {
	c, t := s.client, cache.TypeURL(r.GetTypeUrl())
	c.stats.deliveries.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	var fault error
	for _, resource := range r.GetResources() {
		if resource.GetResource() == nil {
			continue // a heartbeat
		}
		if _, err := c.take(t, resource.GetVersion(), resource.GetResource().GetValue()); err != nil {
			fault = err
		}
	}
	for _, name := range r.GetRemovedResources() {
		delete(c.held, key{t, name})
	}
	requests := []*discovery.DeltaDiscoveryRequest{{TypeUrl: string(t), ResponseNonce: r.GetNonce(), ErrorDetail: nack(fault)}}
	if next := references[t]; next == cache.Route || next == cache.Endpoint {
		if more := s.interest(next); more != nil {
			requests = append(requests, more)
		}
	}
	return requests
}
