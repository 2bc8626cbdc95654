package session

import (
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Names that begin with xdstp:// are handled where they enter and leave a Session. What is between
// sees one spelling of each.

// spellings has the names that the client spells in another way than the relay, by the canonical
// spelling (NAME-8). The client is answered in its own (NAME-9). A Delta client's are kept while it
// asks for the name or may hold the resource.
type spellings struct {
	own   map[string]string
	limit int // the number beyond which those that are not needed any more are dropped
}

// read notes the spellings of names, and returns the canonical ones.
func (s *spellings) read(names []string) []string {
	all := cache.Canonicals(names)
	for i, name := range all {
		s.note(name, names[i])
	}
	return all
}

func (s *spellings) note(name, own string) {
	if own == name {
		drop(&s.own, name)
	} else {
		put(&s.own, name, own)
	}
}

// of returns the client's spelling of a name.
func (s *spellings) of(name string) string {
	if own, other := s.own[name]; other {
		return own
	}
	return name
}

// respell puts the client's spellings into a response. What a Delta client asks for by another name, such as a glob, it
// has never spelled itself: upstream's spelling is its own then, and it hears of the end in the same.
func (x *exchange) respell(r *Response) {
	s := &x.spelled
	other := slices.ContainsFunc(r.Resources, otherwise) || slices.ContainsFunc(r.Heartbeats, otherwise)
	if other && r.Delta {
		x.sub.Read(func(v fanout.View) {
			for _, res := range r.Resources {
				if _, own := s.own[res.Name]; own || subscribes(v, res.Name) {
					continue
				}
				s.note(res.Name, res.Spelled)
			}
		})
	}
	if len(s.own) == 0 && !other {
		return
	}
	r.Resources, r.Heartbeats = s.respellAll(r, r.Resources), s.respellAll(r, r.Heartbeats)
	r.Removed = slices.Clone(r.Removed) // the list may be shared
	for i, name := range r.Removed {
		r.Removed[i] = s.of(name)
	}
	for _, e := range r.Errors {
		e.ResourceName.Name = s.of(e.ResourceName.Name)
	}
}

// otherwise reports whether upstream spells a resource's name in another way than the relay.
func otherwise(r *cache.Resource) bool { return r.Spelled != r.Name }

// respellAll returns resources under the client's spellings. The list and the resources may be shared,
// and are not changed.
func (s *spellings) respellAll(r *Response, resources []*cache.Resource) []*cache.Resource {
	other := func(res *cache.Resource) bool { return s.of(res.Name) != res.Spelled }
	if !slices.ContainsFunc(resources, other) {
		return resources
	}
	resources = slices.Clone(resources)
	for i, res := range resources {
		if !other(res) {
			continue
		}
		resources[i] = res.Respelled(s.of(res.Name))
		if ends, limited := r.Ends[res]; limited {
			r.Ends[resources[i]] = ends
		}
	}
	return resources
}

// readsXDSTP reports whether any name is of this scheme. Most clients have none, and this is all
// that it costs them.
func readsXDSTP(names []string) bool { return slices.ContainsFunc(names, cache.IsXDSTP) }

// spells returns a request with the canonical spellings of its names.
func (d *deltaState) spells(req *discovery.DeltaDiscoveryRequest) *discovery.DeltaDiscoveryRequest {
	versions := req.GetInitialResourceVersions()
	if d.requested {
		versions = nil // only those of the first request count
	}
	came := false
	for name := range versions {
		came = came || cache.IsXDSTP(name)
	}
	if !came && !readsXDSTP(req.GetResourceNamesSubscribe()) && !readsXDSTP(req.GetResourceNamesUnsubscribe()) {
		return req
	}
	spelled := make(map[string]string, len(versions))
	for name, version := range versions {
		spelled[cache.Canonical(name)] = version
		d.spelled.note(cache.Canonical(name), name)
	}
	own := altered(req, d.spelled.read(req.GetResourceNamesSubscribe()), spelled)
	own.ResourceNamesUnsubscribe = cache.Canonicals(req.GetResourceNamesUnsubscribe())
	return own
}

// altered returns a request with other names and versions.
func altered(req *discovery.DeltaDiscoveryRequest, subscribe []string, versions map[string]string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{
		ResponseNonce: req.GetResponseNonce(), ErrorDetail: req.GetErrorDetail(),
		ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: req.GetResourceNamesUnsubscribe(),
		ResourceLocatorsSubscribe: req.GetResourceLocatorsSubscribe(),
		InitialResourceVersions:   versions,
	}
}

// prune drops the spellings of names that the client neither asks for, in vain or not, nor holds.
func (d *deltaState) prune() {
	const least = 64
	if len(d.spelled.own) <= max(d.spelled.limit, least) {
		return
	}
	d.sub.Read(func(v fanout.View) {
		for name := range d.spelled.own {
			_, some := d.of(v, name)
			if asked := subscribes(v, name) || d.denied.has(name); !asked && !some {
				drop(&d.spelled.own, name)
			}
		}
	})
	d.spelled.limit = 2 * len(d.spelled.own)
}

// spells does the same for a SotW request, which repeats all names, and takes out the globs.
func (s *sotwState) spells(names []string) (others, globs []string) {
	s.spelled = spellings{}
	if !readsXDSTP(names) {
		return names, nil
	}
	others, globs = withoutGlobs(names)
	return s.spelled.read(others), globs
}
