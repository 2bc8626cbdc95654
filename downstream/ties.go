package downstream

import (
	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// ties are what a client was told for names that are not the resources' own: it
// asked for an alias (NAME-3), and stores what that leads to under the resource's
// name. When an alias leads to something else, or to nothing, what it was tied to
// is to be taken back by its own name, whoever it came from (NAME-5, WILD-16).
// Nothing is noted of a resource that was asked for by its own name.
type ties struct {
	of    map[string][]string // by name asked for: resources
	to    map[string]tied     // by resource
	loose map[string]string   // resources with no tie left, to be judged: version told
}

// tied is a resource to which aliases lead.
type tied struct {
	names   int    // that lead to it
	version string // "": it does not have it
}

// lead notes what a name that the client asked for leads to now.
func (t *ties) lead(name string, a *cache.Answer) {
	before, plain := t.of[name], len(a.More) == 0 && (a.Resource == nil || a.Resource.Name == name)
	if len(before) == 0 && plain {
		return
	}
	var now []string
	if a.Resource != nil && a.Resource.Name != name {
		now = append(now, a.Resource.Name)
	}
	for _, r := range a.More {
		now = append(now, r.Name)
	}
	if t.of == nil {
		t.of, t.to = make(map[string][]string), make(map[string]tied)
	}
	for _, r := range now {
		held := t.to[r]
		held.names++
		t.to[r] = held
	}
	t.untie(before)
	if t.of[name] = now; len(now) == 0 {
		delete(t.of, name)
	}
}

// untie takes one name away from resources. Those without any are loose.
func (t *ties) untie(resources []string) {
	for _, r := range resources {
		held := t.to[r]
		if held.names--; held.names > 0 {
			t.to[r] = held
			continue
		}
		if delete(t.to, r); held.version != "" {
			t.loosen(r, held.version)
		}
	}
}

// loosenAll loosens what the client has because of a name.
func (t *ties) loosenAll(name string) {
	for _, r := range t.of[name] {
		if version := t.to[r].version; version != "" {
			t.loosen(r, version)
		}
	}
}

func (t *ties) loosen(resource, version string) {
	if t.loose == nil {
		t.loose = make(map[string]string)
	}
	t.loose[resource] = version
}

// told notes the versions of resources that the client has now.
func (t *ties) told(resources ...*cache.Resource) {
	if len(t.to) == 0 {
		return
	}
	for _, r := range resources {
		if held, ok := t.to[r.Name]; ok && held.version != r.Version {
			held.version = r.Version
			t.to[r.Name] = held
		}
	}
}

// gone notes that the client was told that names are gone.
func (t *ties) gone(names []string) {
	for _, name := range names {
		delete(t.loose, name)
		if held, ok := t.to[name]; ok {
			held.version = ""
			t.to[name] = held
		}
	}
}

// has: the client was told exactly this, for some alias of it.
func (t *ties) has(r *cache.Resource) bool { return t.to[r.Name].version == r.Version }

// drop forgets a name that the client gives up, and with it what only that led to.
func (t *ties) drop(name string) (dropped []string) {
	for _, r := range t.of[name] {
		held := t.to[r]
		if held.names--; held.names > 0 {
			t.to[r] = held
			continue
		}
		delete(t.to, r)
		dropped = append(dropped, r)
	}
	delete(t.of, name)
	return dropped
}

// collectLoose judges what no alias leads to any more. Unless the client's interest
// covers it otherwise it is gone; if the wildcard does, it is told as a member. What
// cannot be judged yet is loose still.
func (t *ties) collectLoose(v fanout.View) (members []*cache.Resource, gone []string) {
	subscribed, synced := v.Wildcard()
	for name, version := range t.loose {
		if _, again := t.to[name]; again {
			delete(t.loose, name)
			continue
		}
		if id, ok := v.Lookup(name); ok {
			a := v.Answer(id)
			if a.State == cache.Unknown || a.Resource != nil && a.Resource.Name == name {
				delete(t.loose, name) // it is answered by its own name
				continue
			}
		} else if subscribed {
			if !synced {
				continue
			}
			r := v.Member(name)
			if r == nil && v.WarmSet() {
				continue // what was loaded from disk may lack it (RECON-19)
			}
			if r != nil {
				if r.Version != version {
					members = append(members, r)
				}
				delete(t.loose, name)
				continue
			}
		}
		gone = append(gone, name)
		delete(t.loose, name)
	}
	return members, gone
}
