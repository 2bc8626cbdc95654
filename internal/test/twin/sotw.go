package twin

import (
	"fmt"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// A control plane that speaks SotW. The game's server and the Checker think in Delta;
// here stands what SotW makes of that (TRANSLATE-2 to -11).

// sotwLane is what a SotW stream has asked for, of one type.
type sotwLane struct {
	names  []string
	nonces map[string]bool // of responses that are not judged yet
}

// sotwAsked is what a request says, in Delta: a verdict, and what is asked for and given
// up.
func (s *serverStream) sotwAsked(req *discovery.DiscoveryRequest) (said []*discovery.DeltaDiscoveryRequest) {
	k := kindOf(req.GetTypeUrl())
	l := s.sotw[k.name]
	first := l == nil
	if first {
		l = &sotwLane{nonces: map[string]bool{}}
		s.sotw[k.name] = l
	}
	if l.nonces[req.GetResponseNonce()] {
		delete(l.nonces, req.GetResponseNonce())
		said = append(said, &discovery.DeltaDiscoveryRequest{
			TypeUrl: req.GetTypeUrl(), ResponseNonce: req.GetResponseNonce(), ErrorDetail: req.GetErrorDetail(),
		})
	}
	more, fewer := beyond(req.GetResourceNames(), l.names), beyond(l.names, req.GetResourceNames())
	l.names = req.GetResourceNames()
	if len(more)+len(fewer) > 0 || first {
		said = append(said, &discovery.DeltaDiscoveryRequest{TypeUrl: req.GetTypeUrl(), ResourceNamesSubscribe: more, ResourceNamesUnsubscribe: fewer})
	}
	for _, d := range said {
		d.Node = req.GetNode()
	}
	return said
}

// beyond are the names that are not among others.
func beyond(names, others []string) (more []string) {
	among := map[string]bool{}
	for _, name := range others {
		among[name] = true
	}
	for _, name := range names {
		if !among[name] {
			more = append(more, name)
		}
	}
	return more
}

// sotwAnswer is what a SotW server says in place of a Delta response, and what the
// relay is to make of it; nothing if there is nothing to say. A full set lists all
// there is: who is not in it and was there is gone, and who was never there may be on
// the way, or in error (TRANSLATE-5, ERR-8). Of other types nobody is told what is gone (TRANSLATE-7).
func (g *Game) sotwAnswer(plane *controlPlane, s *serverStream, delta *discovery.DeltaDiscoveryResponse) (*discovery.DiscoveryResponse, *discovery.DeltaDiscoveryResponse) {
	k := kindOf(delta.GetTypeUrl())
	l := s.lanes[k.name]
	if l == nil || !l.wildcard && len(l.names) == 0 || s.sotw[k.name] == nil {
		return nil, nil
	}
	means := &discovery.DeltaDiscoveryResponse{TypeUrl: delta.TypeUrl, Nonce: delta.Nonce, ResourceErrors: delta.ResourceErrors}
	if k.full {
		listed := map[string]bool{}
		for _, e := range means.ResourceErrors {
			listed[e.GetResourceName().GetName()] = true
		}
		for _, name := range plane.names {
			if r, ok := plane.world[k.name][name]; ok && plane.wants(k, l, name, r.Aliases) {
				means.Resources = append(means.Resources, plane.wire(k, name))
				plane.noteSent(k, l, name, r)
				listed[name] = true
			}
		}
		for name, w := range g.checker.lanes[k.name][l.wildcard].words {
			if w.there() && !listed[name] {
				means.RemovedResources = append(means.RemovedResources, name)
			}
		}
		for name := range l.names {
			if g.snapshot && !listed[name] { // it may be there from disk
				means.RemovedResources = append(means.RemovedResources, name)
			}
		}
		slices.Sort(means.RemovedResources)
		means.RemovedResources = slices.Compact(means.RemovedResources)
	} else {
		for _, r := range delta.Resources {
			if r.GetResource() != nil {
				means.Resources = append(means.Resources, r)
			}
		}
		if len(means.Resources)+len(means.ResourceErrors) == 0 && !l.wildcard {
			return nil, nil
		}
	}
	resp := &discovery.DiscoveryResponse{
		TypeUrl: delta.TypeUrl, Nonce: delta.Nonce, VersionInfo: fmt.Sprintf("s%d", plane.next()), ResourceErrors: delta.ResourceErrors,
	}
	for _, r := range means.Resources {
		body, err := anypb.New(r)
		if err != nil {
			panic(err)
		}
		resp.Resources = append(resp.Resources, body)
	}
	s.sotw[k.name].nonces[resp.Nonce] = true
	return resp, means
}
