package fanout

import (
	"maps"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// unwanted is what was given up of a type since the last call of Disk.Unwanted. It leaves the Hub, but not
// the disk: a client may come back after the relay was started again, while upstream is away
// (RECON-19). The Hub notes it when it gives it up. A comparison of the Hub with the last file would
// not do: what upstream has removed could not be told from what nobody wants.
type unwanted struct {
	x     *index
	names map[string]leftover
	set   *Saved // the wildcard's
}

// leftover is what a name led to; without resources it led to nothing.
type leftover struct {
	origin    cache.Origin
	asOf      time.Time
	resources []cache.Held
}

func (u *unwanted) any() bool { return u.set != nil || len(u.names) > 0 }

// note notes what a name that is about to be forgotten leads to.
func (u *unwanted) note(id cache.ID, name string) {
	n := &u.x.named
	state := n.Led(id)
	if !u.x.hub.config.KeepUnwanted || state == cache.Unknown {
		return
	}
	var l leftover
	if state == cache.Present {
		l.origin, _ = n.Settled()
		l.asOf, _ = n.AnswerAge(id)
		for _, r := range n.Answer(id).Resources() {
			if own, _ := n.Find(r.Name); !r.DoNotCache {
				l.resources = append(l.resources, n.Hold(own))
			}
		}
		if len(l.resources) == 0 {
			return // it leads to something, which does not belong on disk
		}
	}
	if u.names == nil {
		u.names = make(map[string]leftover)
	}
	u.names[name] = l
}

// noteSet notes the wildcard's set, which is about to be forgotten.
func (u *unwanted) noteSet() {
	if u.x.hub.config.KeepUnwanted && u.x.wildcard.isFor(false) {
		s := saveSet(u.x)
		u.set = &s
	}
}

// take returns what was noted, and forgets it.
func (u *unwanted) take() []Saved {
	lanes := parts{lane: Lane{Type: u.x.url}}
	for _, name := range slices.Sorted(maps.Keys(u.names)) {
		l := u.names[name]
		part := lanes.of(l.origin, l.asOf)
		if len(l.resources) == 0 {
			part.Gone = append(part.Gone, name)
			continue
		}
		part.Names = append(part.Names, name)
		part.Resources = append(part.Resources, l.resources...)
	}
	for i := range lanes.all { // several names may have led to one
		seen := make(map[*cache.Resource]bool)
		lanes.all[i].Resources = slices.DeleteFunc(lanes.all[i].Resources, func(r cache.Held) bool {
			was := seen[r.Resource]
			seen[r.Resource] = true
			return was
		})
	}
	if u.set != nil {
		lanes.all = append(lanes.all, *u.set)
	}
	u.names, u.set = nil, nil
	return lanes.all
}

// Unwanted returns what the Hub has given up since the last call, without the types for which skip is
// true. The Hub notes it only if Config.KeepUnwanted is set.
func (d Disk) Unwanted(skip func(cache.TypeURL) bool) (lanes []Saved) {
	for _, x := range d.hub.types.all() {
		x.mu.Lock()
		noted := x.unwanted.any()
		if s := x.unwanted.take(); !skip(x.url) {
			lanes = append(lanes, s...)
		}
		x.mu.Unlock()
		if noted {
			d.hub.types.drop(x.url)
		}
	}
	return lanes
}
