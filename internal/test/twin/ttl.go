package twin

import (
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Resources with a TTL (TTL-1 to -12). The control plane renews them by sending them again, with a body or
// without. What it does not renew in time goes from the relay and from every client; the control plane,
// which keeps the same account, then sends it again as if it never had. Clients that know TTLs are sent
// what is left of them; the others are sent a removal when one has ended.

// takesTTL reports whether a client knows TTLs, as every other pair of clients does.
func (p *player) takesTTL() bool { return p.id == 1 || p.id == 2 }

// ttlFeatures is how a client says so.
var ttlFeatures = []string{"xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"}

// setTTL gives resources another TTL, or none, which is sent with their bodies.
func (p *controlPlane) setTTL(k kind, names []string, ttl time.Duration) {
	if ttl > 0 {
		ttl += p.between
	}
	for _, name := range names {
		r, ok := p.world[k.name][name]
		if !ok || r.TTL == ttl {
			continue
		}
		r.TTL = ttl
		p.world[k.name][name], p.timed[name] = r, true
		for _, s := range p.streams {
			if l := s.lanes[k.name]; l != nil && l.sent[name] != "" {
				l.sent[name] = "?"
			}
		}
	}
}

// expires notes until when a resource is good that is being sent.
func (p *controlPlane) expires(l *serverLane, name string, ttl time.Duration) {
	if delete(l.ends, name); ttl > 0 {
		l.ends[name] = p.now().Add(ttl)
	}
}

// lapse forgets what was sent and not renewed in time.
func (p *controlPlane) lapse(k kind, l *serverLane) {
	for name, at := range l.ends {
		if !at.After(p.now()) {
			delete(l.ends, name)
			if r, is := p.world[k.name][name]; is && p.wants(k, l, name, r.Aliases) { // else it says so
				delete(l.sent, name)
			}
			p.changes++
		}
	}
}

// heartbeats renews names on a stream without their bodies (TTL-4); last: and for good (TTL-1).
func (p *controlPlane) heartbeats(l *serverLane, k kind, names []string, last bool) (renewed []*discovery.Resource) {
	if p.lapse(k, l); p.is(remembers) && k.full {
		return nil // what it has sent unasked the relay need not have
	}
	asks := Interest{Names: l.names, Wildcard: l.wildcard}
	for _, name := range names {
		r, ok := p.world[k.name][name]
		if !ok || l.ends[name].IsZero() || l.sent[name] != p.version(r) || !asks.Covers(name, l.as[name]) || slices.ContainsFunc(renewed, func(b *discovery.Resource) bool { return b.GetName() == name }) {
			continue
		}
		b := &discovery.Resource{Name: name, Version: p.version(r)}
		if r.TTL > 0 && !last {
			b.Ttl = durationpb.New(r.TTL)
			l.ends[name] = p.now().Add(r.TTL)
		} else {
			delete(l.ends, name)
		}
		renewed = append(renewed, b)
	}
	return renewed
}
