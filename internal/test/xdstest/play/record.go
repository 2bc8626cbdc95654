package play

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// After each request and each response the resources that a client holds, by its own messages,
// are compared with the record that its Session keeps. Names are compared in their canonical spelling (NAME-8).

// known is what a client knows, by type.
type known map[cache.TypeURL]*knows

// knows is what a client wants of one type, and what it holds.
type knows struct {
	asked    bool
	legacy   bool // wildcard without ever having named anything
	wildcard bool
	names    map[string]bool
	holds    map[string]copied
	// strange: it came with something that this account does not know.
	strange bool
}

// copied is what it holds of one resource.
type copied struct {
	version string // "": it came with it, nobody knows in which version
	aliases []string
	ends    time.Time // when it drops it by itself; zero: never
	brought bool      // it came with it, nobody knows with which aliases
}

func (c known) of(t cache.TypeURL) *knows {
	if c[t] == nil {
		c[t] = &knows{names: map[string]bool{}, holds: map[string]copied{}}
	}
	return c[t]
}

// asks takes in a request. empty: the first one for nothing asks for all.
func (c known) asks(m proto.Message, t cache.TypeURL, empty bool) {
	k := c.of(t)
	before := *k
	before.names = maps.Clone(k.names)
	switch req := m.(type) {
	case *discovery.DeltaDiscoveryRequest:
		k.delta(req, empty)
	case *discovery.DiscoveryRequest:
		k.sotw(req, empty)
	}
	still := *k // what is newly asked for covers nothing that the client has
	still.names = maps.Clone(k.names)
	maps.DeleteFunc(still.names, func(name string, _ bool) bool { return !before.names[name] })
	for name, h := range k.holds {
		switch {
		case !before.covers(name, h.aliases) || still.covers(name, h.aliases):
		case k.covers(name, h.aliases), h.brought && len(k.names) > 0: // given up for one cause, and wanted for another, or perhaps
			k.holds[name] = copied{aliases: h.aliases}
		default:
			delete(k.holds, name)
		}
	}
}

func (k *knows) delta(req *discovery.DeltaDiscoveryRequest, empty bool) {
	if !k.asked {
		k.legacy = empty && len(req.GetResourceNamesSubscribe()) == 0
		k.wildcard = k.legacy
		for name, version := range req.GetInitialResourceVersions() {
			k.holds[cache.Canonical(name)] = copied{version: version, brought: true}
		}
	}
	k.asked = true
	for _, name := range cache.Canonicals(req.GetResourceNamesSubscribe()) {
		k.wildcard = k.wildcard || name == "*"
		if name != "*" {
			k.names[name] = true
		}
	}
	for _, name := range cache.Canonicals(req.GetResourceNamesUnsubscribe()) {
		k.wildcard = k.wildcard && name != "*"
		delete(k.names, name)
		if !k.wildcard && k.holds[name].aliases == nil {
			delete(k.holds, name)
		}
	}
}

func (k *knows) sotw(req *discovery.DiscoveryRequest, empty bool) {
	names := cache.Canonicals(req.GetResourceNames())
	if !k.asked {
		k.legacy = empty && len(names) == 0
	}
	k.legacy = k.legacy && len(names) == 0
	k.wildcard = k.legacy || slices.Contains(names, "*")
	clear(k.names)
	for _, name := range names {
		if name != "*" {
			k.names[name] = true
		}
	}
	if !k.asked && req.GetVersionInfo() != "" {
		k.strange = true
		for name := range k.names {
			k.holds[name] = copied{}
		}
	}
	k.asked = true
}

func (k *knows) covers(name string, aliases []string) bool {
	if k.wildcard || k.asksGlob() {
		return true
	}
	return k.names[name] || slices.ContainsFunc(aliases, func(alias string) bool { return k.names[alias] })
}

// asksGlob reports whether the client asks for a glob, which may cover all that it came with (NAME-11).
func (k *knows) asksGlob() bool {
	for name := range k.names {
		if cache.IsGlob(name) {
			return true
		}
	}
	return false
}

// told takes in a response. full: it lists all there is.
func (c known) told(r *session.Response, full bool) {
	k := c.of(r.Type)
	if full && len(r.Heartbeats) == 0 {
		clear(k.holds)
		k.strange = false
	}
	for _, res := range r.Resources {
		if res.Negative {
			for name, h := range k.holds {
				if slices.Contains(res.Aliases, name) || slices.ContainsFunc(res.Aliases, func(alias string) bool { return slices.Contains(h.aliases, alias) }) && !k.covers(name, without(h.aliases, res.Aliases)) {
					delete(k.holds, name)
				}
			}
			continue
		}
		k.holds[cache.Canonical(res.Name)] = copied{res.Version, res.Aliases, r.Ends[res], false}
	}
	for _, res := range r.Heartbeats {
		if h, ok := k.holds[cache.Canonical(res.Name)]; ok {
			h.ends = r.Ends[res]
			k.holds[cache.Canonical(res.Name)] = h
		}
	}
	for _, name := range cache.Canonicals(r.Removed) {
		delete(k.holds, name)
	}
}

func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// recorded compares what a client holds with the record of its Session.
func (c *client) recorded(now time.Time) error {
	if c.session == nil || c.fetches {
		return nil
	}
	if broken := c.session.Check(); len(broken) > 0 {
		return fmt.Errorf("%s: %s", c.actor, strings.Join(broken, "; "))
	}
	for t, k := range c.knows {
		for name, h := range k.holds {
			switch expired := !h.ends.IsZero() && !h.ends.After(now); {
			case expired && c.session.Due(): // the relay has not told the client yet
				h.version = ""
				k.holds[name] = h
			case expired:
				delete(k.holds, name)
			}
		}
		said := c.session.Holdings(t, slices.Collect(maps.Keys(k.holds))...)
		for _, name := range slices.Sorted(maps.Keys(said)) {
			h, some := k.holds[name]
			if some && h.version == "" || !some && k.strange {
				continue
			}
			if said[name].Not != "" && c.session.Due() {
				continue // it may have changed back
			}
			if other := Contradicts(said[name], h.version, some); other != "" {
				return fmt.Errorf("%s holds version %q of %s %s (%v), and the record has %s", c.actor, h.version, t.Short(), name, some, other)
			}
		}
	}
	return nil
}

// Contradicts returns what a record says of a resource, or "" if a client that has a version of it,
// or none, agrees with the record.
func Contradicts(h session.Holding, version string, some bool) string {
	switch {
	case h == (session.Holding{}) && some:
		return "nothing"
	case h.Version != "" && !(some && version == h.Version):
		return h.Version
	case h.Not != "" && some && version == h.Not:
		return fmt.Sprintf("another version than %q", h.Not)
	}
	return ""
}

// recorded looks at all clients when all is quiet.
func (p *player) recorded() {
	for _, c := range p.clients {
		p.fault = cmp.Or(p.fault, c.recorded(p.now))
	}
	for _, g := range p.groups {
		if broken := g.core.Broken(p.now); len(broken) > 0 {
			p.fault = cmp.Or(p.fault, errors.New(strings.Join(broken, "; ")))
		}
	}
}

// emptyIsWildcard: the first request of a type for nothing asks for all of it.
func (p *player) emptyIsWildcard(t cache.TypeURL) bool {
	return relay.HubConfig(p.config).Types.Of(t).EmptyIsWildcard
}

func (p *player) full(t cache.TypeURL) bool { return relay.HubConfig(p.config).Types.Of(t).FullState }
