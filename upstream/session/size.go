package session

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// A union of interest grows beyond what any one client asks for, and servers refuse a message that
// is too long, with the stream. So a long list of names goes over several requests (UP-17). How
// long a request becomes is counted name by name: a message is not made to be measured, and a name
// that waits is sorted once, however many requests go before it.

// budget is what a request has left of the limit.
type budget struct {
	left       int // in bytes
	used, most int // names and versions
}

// unlimited is the budget of a request that cannot be split.
func unlimited() *budget { return &budget{left: math.MaxInt, most: math.MaxInt} }

// budget is that of a Delta request of a type, with the node if it carries one.
func (s *streamState) budget(t cache.TypeURL, node *core.Node) *budget {
	return &budget{left: s.limit - proto.Size(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: string(t)}), most: math.MaxInt}
}

// take uses up the budget for something, if there is enough left. The first thing always fits.
func (r *budget) take(size int) bool {
	if r.used > 0 && (size > r.left || r.used >= r.most) {
		return false
	}
	r.left, r.used = r.left-size, r.used+1
	return true
}

// tag is what the number of each field takes that is counted here.
const tag = 1

// nameSize is what a name takes in a list.
func nameSize(name string) int { return tag + protowire.SizeBytes(len(name)) }

// pending are names that are to be written, in batches, each sorted: what comes while
// one is being written is in the next.
type pending struct {
	set   map[string]struct{}
	batch []string // what is left of it; some may not be in the set any more
}

func newPending() pending { return pending{set: make(map[string]struct{})} }

func (p *pending) add(name string)    { p.set[name] = struct{}{} }
func (p *pending) remove(name string) { delete(p.set, name) }
func (p *pending) len() int           { return len(p.set) }

func (p *pending) has(name string) bool {
	_, ok := p.set[name]
	return ok
}

// take takes as many as there is room for, in order, except for some that are to wait.
func (p *pending) take(r *budget, wait func(name string) bool) (names []string) {
	begun := len(p.batch) > 0
	if begun {
		if names = p.takeBatch(nil, r, wait); len(p.batch) > 0 {
			return names
		}
	}
	p.batch = slices.Sorted(maps.Keys(p.set))
	if names = p.takeBatch(names, r, wait); begun {
		slices.Sort(names)
	}
	return names
}

func (p *pending) takeBatch(names []string, r *budget, wait func(name string) bool) []string {
	for i, name := range p.batch {
		switch {
		case !p.has(name) || wait(name):
		case !r.take(nameSize(name)):
			p.batch = p.batch[i:]
			return names
		default:
			p.remove(name)
			names = append(names, name)
		}
	}
	p.batch = nil
	return names
}

// opening is how a lane is asked for: what its first request says, and what that leaves.
type opening struct {
	listed []string
	// shown are versions by name, as upstream spells it, and known the same by the canonical one.
	shown, known map[string]string
	// rest are names that later requests list, hidden what is here and not shown.
	rest, hidden []string
}

// fit divides the whole interest of a lane: the first request lists as many names as
// there is room for, each with the versions of what it leads to, as far as they fit. A
// version never goes without a name that leads to it: no interest would cover it yet.
func fit(r *budget, names []string, here []cache.Held) (o opening) {
	leads := make([][]cache.Held, len(names))
	for _, h := range here {
		i := leadsTo(names, h)
		leads[i] = append(leads[i], h)
	}
	o.shown, o.known = make(map[string]string, len(here)), make(map[string]string, len(here))
	for i, name := range names {
		if !r.take(nameSize(name)) {
			o.rest = names[i:]
			break
		}
		for _, h := range leads[i] {
			if r.take(tag + protowire.SizeBytes(nameSize(h.Name)+nameSize(h.Upstream))) {
				o.shown[h.Spelled], o.known[h.Name] = h.Upstream, h.Upstream
			}
		}
	}
	o.listed = names[:len(names)-len(o.rest)]
	for _, h := range here {
		if _, ok := o.known[h.Name]; !ok {
			o.hidden = append(o.hidden, h.Name)
		}
	}
	return o
}

// leadsTo is which of the names, in order, is the first that leads to a resource.
func leadsTo(names []string, h cache.Held) int {
	first := len(names)
	for name := range h.Names() {
		if at, listed := slices.BinarySearch(names, name); listed {
			first = min(first, at)
		}
	}
	if first == len(names) {
		return 0 // the wildcard
	}
	return first
}

// maxRequest is the limit of a request to the entry.
func (e *entry) maxRequest(c *Config) int {
	return cmp.Or(e.lowered, c.MaxRequest, math.MaxInt)
}

// tooLong judges a stream that the server ended for want of resources: a long request
// was written on it, which is most likely why. Those that follow are at most half as
// long (UP-17). More than half of the limit is long, and so is what could be shorter: a
// server may take much less than the limit. On a SotW stream a lower limit costs names, so a
// request that was answered does not count.
func (c *Core) tooLong(s *slot) bool {
	least := c.config.bounds().MinRequest
	if !s.open() {
		return false
	}
	short := s.stream.longest <= min(s.stream.limit/2, least)
	answered := s.sotw && s.stream.longest <= s.stream.taken+s.stream.limit/reserve
	if short || answered {
		return false
	}
	e := c.entryOf(s)
	half := min(s.stream.limit, s.stream.longest) / 2
	e.lowered = min(e.maxRequest(&c.config), max(half, least))
	notice := fmt.Sprintf("the control plane ends a stream on which a request of %d bytes was written; none will be longer than %d from now on", s.stream.longest, e.lowered)
	if s.sotw {
		notice = fmt.Sprintf("the control plane ends a stream on which a request of %d bytes was written; none will be longer than %d from now on, and names that do not fit are left out: a list cannot be split in SotW, so that the control plane's own limit has to be raised", s.stream.longest, e.lowered)
	}
	c.notice(e, notice)
	return true
}
