package session

import (
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/fanout"
)

// The limits on what a client may make the relay keep (VALID-8, threat T10). A request is checked
// before anything of it is taken in, so that nothing beyond a limit reaches upstream.

// The limits without a setting: the types of one stream, of which the protocol has a dozen, and,
// in bytes, a type's name, a resource's version and a node.
const (
	maxTypes   = 256
	maxTypeURL = 256
	maxVersion = 4 << 10
	maxNode    = 256 << 10
)

func (s *Session) checkNames(lists ...[]string) *End {
	for _, names := range lists {
		for _, name := range names {
			if len(name) > s.config.MaxName {
				return tooLong("resource name", name, s.config.MaxName)
			}
		}
	}
	return nil
}

func tooLong(what, name string, limit int) *End {
	return &End{OverLimit, fmt.Sprintf("%s of %d bytes (%.40q...) exceeds the limit of %d; raise downstream.max_name_bytes", what, len(name), name, limit)}
}

// checkVersions checks what a client came with, which is kept until everything that it asks for
// is resolved. That may be never.
func (s *Session) checkVersions(versions map[string]string) *End {
	for name, version := range versions {
		if end := s.checkNames([]string{name}); end != nil {
			return end
		}
		if len(version) > maxVersion {
			return &End{OverLimit, fmt.Sprintf("version of %d bytes (%.40q...) exceeds the limit of %d", len(version), version, maxVersion)}
		}
	}
	return nil
}

// room is what a stream keeps for its client.
type room struct{ names, versions int }

// takes returns the part of it that a type takes.
func (x *exchange) takes() room {
	r := room{names: x.refused.len() + len(x.unserved) + len(x.globs), versions: x.exact.toJudge}
	x.sub.Read(func(v fanout.View) { r.names += len(v.Names()) })
	for _, as := range x.released {
		if as.givenUp {
			r.names++
		}
	}
	return r
}

// claims checks what would be kept of the type after a request. It counts exactly only if the
// limit may be exceeded, because that looks up names under the lock of the type.
func (s *Session) claims(d *deltaState, req *discovery.DeltaDiscoveryRequest) *End {
	r := d.takes()
	r.names += len(req.GetResourceLocatorsSubscribe())
	if !d.requested {
		r.versions = len(req.GetInitialResourceVersions())
	}
	most := r
	most.names += len(req.GetResourceNamesSubscribe())
	if s.checkRoom(d, most) == nil {
		return nil
	}
	r.names += d.grows(req)
	return s.checkRoom(d, r)
}

// grows returns how many more names the client would subscribe to after a request.
func (d *deltaState) grows(req *discovery.DeltaDiscoveryRequest) int {
	if len(req.GetResourceNamesSubscribe()) == 0 {
		return 0 // not more than before, at any rate
	}
	come, leave := make(map[string]struct{}), make(map[string]struct{})
	d.sub.Read(func(v fanout.View) {
		for _, name := range req.GetResourceNamesSubscribe() {
			if !subscribes(v, name) && name != fanout.Wildcard {
				come[name] = struct{}{}
			}
		}
		for _, name := range req.GetResourceNamesUnsubscribe() {
			delete(come, name) // subscribes come first (DOWN-DELTA-5)
			if subscribes(v, name) {
				leave[name] = struct{}{}
			}
		}
	})
	return len(come) - len(leave)
}

// checkRoom refuses a request that would make a stream keep more than the limit over all types,
// given what the stream would keep of one.
func (s *Session) checkRoom(of state, r room) *End {
	for _, st := range s.states {
		if st != of {
			k := st.base().takes()
			r.names += k.names
			r.versions += k.versions
		}
	}
	switch limit := s.config.MaxNames; {
	case r.versions > limit:
		return &End{OverLimit, fmt.Sprintf("%d resource versions on one stream exceed the limit of %d; raise downstream.max_names_per_stream", r.versions, limit)}
	case r.names > limit:
		return &End{OverLimit, fmt.Sprintf("%d names on one stream exceed the limit of %d; raise downstream.max_names_per_stream", r.names, limit)}
	}
	return nil
}
