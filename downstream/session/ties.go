package session

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
	// noted is what was learned under the lock of the type and is not in of and to yet, in
	// order: there may be very much of it.
	noted []tie
}

// tied is a resource to which aliases lead.
type tied struct {
	names   int    // that lead to it
	version string // "": it does not have it
}

// tie is what is noted.
type tie struct {
	name     string // asked for, or gone
	resource *cache.Resource
	kind     tieKind
}

type tieKind uint8

const (
	tieGone  tieKind = iota // the client has what bears the name no more
	tieTold                 // it has the resource
	tieLead                 // the name leads to the resource, if there is one,
	tieFirst                // and the client has that,
	tieMore                 // and the name that was noted last leads to this one, too
)

// lead notes what a name that the client asked for leads to now.
func (t *ties) lead(name string, a *cache.Answer) {
	before, plain := t.of[name], len(a.More) == 0 && (a.Resource == nil || a.Resource.Name == name)
	if len(before) == 0 && plain {
		return
	}
	t.noted = append(t.noted, tie{name, a.Resource, tieLead})
	for _, r := range a.More {
		t.noted = append(t.noted, tie{name, r, tieMore})
	}
	if len(before) > 0 {
		t.fold() // something may get loose
	}
}

// fold takes in what was noted.
func (t *ties) fold() {
	if t.of == nil && len(t.noted) > 0 {
		t.of, t.to = make(map[string][]string), make(map[string]tied)
	}
	for i := 0; i < len(t.noted); i++ {
		switch n := t.noted[i]; n.kind {
		case tieGone:
			t.has(n.name, "")
		case tieTold:
			t.has(n.resource.Name, n.resource.Version)
		default:
			more := 0
			for i+more+1 < len(t.noted) && t.noted[i+more+1].kind == tieMore {
				more++
			}
			t.leads(n, t.noted[i+1:i+1+more])
			i += more
		}
	}
	t.noted = nil
}

func (t *ties) leads(n tie, more []tie) {
	before := t.of[n.name]
	var now []string
	if n.resource != nil && n.resource.Name != n.name {
		now = append(now, n.resource.Name)
	}
	for _, m := range more {
		now = append(now, m.resource.Name)
	}
	for _, r := range now {
		held := t.to[r]
		held.names++
		t.to[r] = held
	}
	t.untie(before)
	if t.of[n.name] = now; len(now) == 0 {
		delete(t.of, n.name)
	}
	if n.kind == tieFirst {
		t.has(n.resource.Name, n.resource.Version)
	}
}

// expect makes room for so much that is to be noted.
func (t *ties) expect(n int) {
	if n > cap(t.noted) && n > manyTies {
		t.noted = make([]tie, 0, n)
	}
}

// manyTies are so many that room is made for them ahead.
const manyTies = 1000

// has notes which version of a resource the client has, if aliases lead to it.
func (t *ties) has(resource, version string) {
	if held, ok := t.to[resource]; ok && held.version != version {
		held.version = version
		t.to[resource] = held
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
	for _, r := range resources {
		last := len(t.noted) - 1
		switch {
		case last >= 0 && t.noted[last].resource == r && t.noted[last].kind == tieLead:
			t.noted[last].kind = tieFirst
		case last >= 0:
			t.noted = append(t.noted, tie{"", r, tieTold})
		case len(t.to) > 0:
			t.has(r.Name, r.Version)
		}
	}
}

// gone notes that the client was told that names are gone.
func (t *ties) gone(names []string) {
	for _, name := range names {
		delete(t.loose, name)
		switch {
		case len(t.noted) > 0:
			t.noted = append(t.noted, tie{name, nil, tieGone})
		case len(t.to) > 0:
			t.has(name, "")
		}
	}
}

// knows: the client was told exactly this, for some alias of it, before the response that is
// being made. That lists no resource twice.
func (t *ties) knows(r *cache.Resource) bool { return t.to[r.Name].version == r.Version }

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
	if len(t.loose) == 0 {
		return nil, nil
	}
	t.fold()
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
