package demo

import (
	"context"
	"maps"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// sotwStream is one stream of a SotW client. As gRPC does, it asks for everything
// by name: the listeners of the services it calls, then what these lead to.
type sotwStream struct {
	client *client
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	asked  map[cache.TypeURL][]string
	nonces map[cache.TypeURL]string
	node   bool // has been sent
}

// sotwOrder is the order in which a gRPC client learns of the types.
var sotwOrder = []cache.TypeURL{cache.Listener, cache.Route, cache.Cluster, cache.Endpoint}

func (c *client) streamSotW(ctx context.Context, service discovery.AggregatedDiscoveryServiceClient) error {
	stream, err := service.StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	c.setConnected(true)
	s := &sotwStream{client: c, stream: stream, asked: make(map[cache.TypeURL][]string), nonces: make(map[cache.TypeURL]string)}
	for _, t := range sotwOrder {
		if names := s.wanted(t); len(names) > 0 {
			if err := s.request(t, names, nil); err != nil {
				return err
			}
		}
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		t := cache.TypeURL(r.GetTypeUrl())
		fault := s.take(t, r)
		if err := s.request(t, s.asked[t], fault); err != nil {
			return err
		}
		next := references[t]
		if names := s.wanted(next); next != "" && !slices.Equal(names, s.asked[next]) {
			if err := s.request(next, names, nil); err != nil {
				return err
			}
		}
	}
}

// wanted are the names of a type that the client needs now.
func (s *sotwStream) wanted(t cache.TypeURL) []string {
	if t == cache.Listener {
		return s.client.services
	}
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	return slices.Sorted(maps.Keys(s.client.referred(t)))
}

// request asks for names of a type, which is also the ACK, or the NACK, of the
// type's last response.
func (s *sotwStream) request(t cache.TypeURL, names []string, fault error) error {
	s.asked[t] = names
	s.client.mu.Lock()
	version := s.client.versions[t]
	s.client.mu.Unlock()
	r := &discovery.DiscoveryRequest{
		TypeUrl: string(t), ResourceNames: names, VersionInfo: version,
		ResponseNonce: s.nonces[t], ErrorDetail: nack(fault),
	}
	if !s.node {
		r.Node, s.node = s.client.node(), true
	}
	return s.stream.Send(r)
}

// take takes in a response.
func (s *sotwStream) take(t cache.TypeURL, r *discovery.DiscoveryResponse) (fault error) {
	c := s.client
	c.stats.deliveries.Add(1)
	s.nonces[t] = r.GetNonce()
	c.mu.Lock()
	defer c.mu.Unlock()
	came := make(map[string]bool)
	for _, body := range r.GetResources() {
		name, err := c.take(t, r.GetVersionInfo(), body.GetValue())
		if err != nil {
			fault = err
			continue
		}
		came[name] = true
	}
	if fault != nil {
		return fault
	}
	c.versions[t] = r.GetVersionInfo()
	maps.DeleteFunc(c.held, func(k key, _ held) bool {
		// Listeners and clusters come as whole sets: what is left out is gone.
		gone := (t == cache.Listener || t == cache.Cluster) && !came[k.name]
		return k.typ == t && gone
	})
	return nil
}
