package demo

import (
	"context"
	"maps"
	"slices"
	"strconv"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// planeStream is a stream of the control plane. It tells what is asked for of a type, and
// then what changes.
type planeStream struct {
	cp     *controlPlane
	wake   chan struct{} // one slot: something has changed
	asked  map[cache.TypeURL]*asked
	nonces int
}

// asked is what a stream wants of a type, and has.
type asked struct {
	wildcard bool
	names    map[string]bool
	versions map[string]string
}

// DeltaAggregatedResources implements discovery.AggregatedDiscoveryServiceServer.
func (cp *controlPlane) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	s := &planeStream{cp: cp, wake: make(chan struct{}, 1), asked: make(map[cache.TypeURL]*asked)}
	cp.join(s)
	defer cp.leave(s)
	requests := make(chan *discovery.DeltaDiscoveryRequest)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		defer cancel()
		for {
			r, err := stream.Recv()
			if err != nil {
				return // the stream is over
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		var responses []*discovery.DeltaDiscoveryResponse
		select {
		case r := <-requests:
			if r := s.request(r); r != nil {
				responses = append(responses, r)
			}
		case <-s.wake:
			responses = s.changes()
		case <-ctx.Done():
			return nil
		}
		for _, r := range responses {
			cp.responses.Add(1)
			if err := stream.Send(r); err != nil {
				return err
			}
		}
	}
}

// request takes in a request, and returns the answer if there is one.
func (s *planeStream) request(r *discovery.DeltaDiscoveryRequest) *discovery.DeltaDiscoveryResponse {
	t := cache.TypeURL(r.GetTypeUrl())
	a, first := s.asked[t], false
	if a == nil {
		a, first = &asked{names: make(map[string]bool), versions: make(map[string]string)}, true
		a.wildcard = len(r.GetResourceNamesSubscribe()) == 0
		maps.Copy(a.versions, r.GetInitialResourceVersions())
		s.asked[t] = a
	}
	for _, name := range r.GetResourceNamesUnsubscribe() {
		a.set(name, false)
		delete(a.versions, name)
	}
	for _, name := range r.GetResourceNamesSubscribe() {
		a.set(name, true)
		if !first {
			delete(a.versions, name) // it is to be sent again
		}
	}
	if first || len(r.GetResourceNamesSubscribe()) > 0 {
		return s.response(t, r.GetResourceNamesSubscribe(), first)
	}
	return nil
}

func (a *asked) set(name string, wanted bool) {
	switch {
	case name == "*":
		a.wildcard = wanted
	case wanted:
		a.names[name] = true
	default:
		delete(a.names, name)
	}
}

// changes are what the stream lacks of all types.
func (s *planeStream) changes() (responses []*discovery.DeltaDiscoveryResponse) {
	for _, t := range slices.Sorted(maps.Keys(s.asked)) {
		if r := s.response(t, nil, false); r != nil {
			responses = append(responses, r)
		}
	}
	return responses
}

// response is what the stream lacks of a type; nil if that is nothing, and need not be said.
// Names that were asked for and do not exist are said to be gone.
func (s *planeStream) response(t cache.TypeURL, names []string, always bool) *discovery.DeltaDiscoveryResponse {
	a, revisions := s.asked[t], s.cp.revisionsOf(t)
	r := &discovery.DeltaDiscoveryResponse{TypeUrl: string(t)}
	for _, name := range slices.Sorted(maps.Keys(revisions)) {
		version := strconv.Itoa(revisions[name])
		if !a.wildcard && !a.names[name] || a.versions[name] == version {
			continue
		}
		a.versions[name] = version
		r.Resources = append(r.Resources, &discovery.Resource{Name: name, Version: version, Resource: resource(t, name, revisions[name])})
	}
	for _, name := range names {
		if revisions[name] == 0 && name != "*" {
			r.RemovedResources = append(r.RemovedResources, name)
		}
	}
	if !always && len(r.Resources)+len(r.RemovedResources) == 0 {
		return nil
	}
	s.nonces++
	r.Nonce = strconv.Itoa(s.nonces)
	return r
}
