package twin

import (
	"cmp"
	"maps"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Responses with a fault must be NACKed (ERR-10). What is sound in one counts. The name that is faulty may
// exist or not; where the fault hides the name, that goes for every name of the type. The control plane
// hears the NACK, and sends all of it once more.

// What is wrong with the first resource of a response, by number.
const (
	faultTwice    = iota // it is listed once more, with other content
	faultBoth            // it is listed among those that are gone, too
	faultType            // its body is of another type
	faultNameless        // it has no name
	faultKinds
)

// faulty puts a fault into a response. It returns what is sound in it, and the name that is in doubt,
// "" if the fault hides it. ok is false if there is nothing to spoil.
func faulty(resp *discovery.DeltaDiscoveryResponse, fault int) (sound *discovery.DeltaDiscoveryResponse, name string, ok bool) {
	i := slices.IndexFunc(resp.GetResources(), func(r *discovery.Resource) bool { return r.GetResource() != nil })
	if i < 0 {
		return nil, "", false
	}
	r := resp.Resources[i]
	name = r.GetName()
	sound = proto.Clone(resp).(*discovery.DeltaDiscoveryResponse)
	sound.Resources = slices.Delete(sound.Resources, i, i+1)
	switch other := proto.Clone(r).(*discovery.Resource); fault % faultKinds {
	case faultTwice:
		other.Resource.Value = append([]byte("not "), r.Resource.Value...)
		resp.Resources = append(resp.Resources, other)
	case faultBoth:
		resp.RemovedResources = append(resp.RemovedResources, name)
	case faultType:
		resp.Resources[i] = other
		other.Resource.TypeUrl = "type.googleapis.com/test.Other"
	case faultNameless:
		resp.Resources[i] = other
		other.Name, name = "", ""
	}
	return sound, name, true
}

// spoilt are a faulty name and what its resources list, each of which has its answer in them, and exists. None: the
// fault hides it.
func spoilt(said proto.Message, name string) (names []string) {
	if resp, delta := said.(*discovery.DeltaDiscoveryResponse); delta && name != "" {
		names = []string{name}
		for _, r := range resp.GetResources() {
			if r.GetName() == name {
				names = append(names, r.GetAliases()...)
			}
		}
	}
	return names
}

// aliases are those with which a stream was sent resources.
func (s *serverStream) aliases(k kind) map[string][]string {
	if l := s.lanes[k.name]; l != nil {
		return maps.Clone(l.as)
	}
	return nil
}

// keeps notes that of a response only what is sound was taken: the others keep the aliases from before, and
// the server says so if they have lost one (ERR-10, NAME-5).
func (l *serverLane) keeps(before map[string][]string, sound *discovery.DeltaDiscoveryResponse) {
	for name, aliases := range before {
		if !slices.ContainsFunc(sound.GetResources(), func(r *discovery.Resource) bool { return r.GetName() == name }) {
			l.as[name] = aliases
		}
	}
}

// unreadable puts a body into a SotW response that cannot be read, in place of its first
// one.
func unreadable(resp *discovery.DiscoveryResponse) {
	resp.Resources[0] = &anypb.Any{TypeUrl: "type.googleapis.com/envoy.service.discovery.v3.Resource", Value: []byte{0xff}}
}

// doubt is what faults have left open on one lane of a type: names, each with the last stream on
// which it was faulty, and, if there is a stream on which one was hidden, any name of which
// nothing is known, and that had been asked for by then.
type doubt struct {
	names map[string]int
	// unasked are those of them that nobody has asked for since: what was not asked for is not given up.
	unasked map[string]bool
	hidden  int // zero: none
	asked   map[string]bool
	said    map[string]bool // names of which there was a sound answer since the last hidden one
	// lapsed are names that were in doubt, and may be still, unless they were given up since; the wildcard
	// stands for all of which nothing is known.
	lapsed map[string]bool
	was    int // hidden, when it lapsed
}

// on reports whether a stream has left something open.
func (d *doubt) on(id int) bool {
	return d.hidden == id || d.was == id || slices.Contains(slices.Collect(maps.Values(d.names)), id)
}

// spoils notes a fault in what a stream has said of a type. No client may be told that the faulty names, none for
// a hidden one, are gone until there is a sound answer, or a later stream has said all there is.
func (c *Checker) spoils(id int, k kind, names []string) {
	s := c.streams[id]
	if s == nil || s.lanes[k.name] == nil {
		return
	}
	c.silence() // names that are absent by now are not in doubt
	l := s.lanes[k.name]
	d := c.doubts[k.name][l.wildcard]
	if d == nil {
		d = &doubt{names: map[string]int{}, unasked: map[string]bool{}, lapsed: map[string]bool{}}
		c.doubts[k.name][l.wildcard] = d
	}
	if l.faulty == nil {
		l.faulty = map[string]bool{}
	}
	for _, name := range names {
		d.names[name], d.unasked[name], l.faulty[name] = id, l.names[name].IsZero(), true
		delete(l.paired, name) // it has an answer, and is not asked for again any more (UP-19)
	}
	if len(names) > 0 {
		return
	}
	d.hidden, d.asked, d.said = id, map[string]bool{}, map[string]bool{}
	for name, subscribed := range l.names {
		if left, was := c.wanted[k.name][name]; c.evicts && was && !left.Before(subscribed) {
			d.lapsed[name] = true // what may not linger is subscribed again, as if for the first time
		} else {
			d.asked[name] = true
		}
	}
}

// sparedByFault reports whether a fault has spared an earlier copy of a name from the sweep of the stream that asks
// by name. It stays while the stream lives, though the name is given up and only an alias leads there (ERR-10).
func (c *Checker) sparedByFault(k kind, name string) bool {
	_, here := c.known[k.name].byName.present(name)
	for _, s := range c.streams {
		if l := s.lanes[k.name]; here && l != nil && !l.wildcard && l.faulty[name] {
			return true
		}
	}
	return false
}

// sound notes a sound answer for names.
func (c *Checker) sound(k kind, wildcard bool, names ...string) {
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && l.wildcard == wildcard {
			for _, name := range names {
				delete(l.faulty, name)
			}
		}
	}
	if d := c.doubts[k.name][wildcard]; d != nil {
		for _, name := range names {
			delete(d.names, name)
			if d.hidden != 0 {
				d.said[name] = true
			}
		}
	}
}

// clears notes that a later stream has said all there is, or that a response with all there is was sound:
// nothing is in doubt any more.
func (c *Checker) clears(id int, k string, wildcard, whole bool) {
	if d := c.doubts[k][wildcard]; d != nil && (whole || !d.on(id)) {
		delete(c.doubts[k], wildcard)
	}
}

// undoubts notes that some client asks for a name again that was given up, or may have been. An earlier
// faulty answer does not concern this client, nor does a fault that hid its name, if no client wants
// any more what was asked for by then.
func (c *Checker) undoubts(k kind, name string) {
	d := c.doubts[k.name][name == wildcard]
	if d == nil {
		return
	}
	over := func(name string) bool {
		left, wanted := c.wanted[k.name][name]
		return wanted && (c.evicts || c.now.Sub(left) >= c.linger)
	}
	if name == wildcard {
		if over(name) {
			d.lapse()
		}
		return
	}
	if over(name) {
		if _, doubted := d.names[name]; doubted && !d.unasked[name] {
			d.lapsed[name] = true
			delete(d.names, name)
		}
		delete(d.asked, name)
	}
	maps.DeleteFunc(d.asked, func(asked string, _ bool) bool {
		return over(asked) && !slices.ContainsFunc(c.interests(k), func(i *Interest) bool { return i.Names[asked] })
	})
	if len(d.asked) == 0 {
		d.hidden = 0
	}
}

// startsOver notes that clients begin to want something of a type of which they wanted nothing. Unless a stream asks
// for some of it still, the relay may have forgotten the type, and with it the doubts over names that were never asked for.
func (c *Checker) startsOver(k kind) {
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && len(l.names) > 0 {
			return
		}
	}
	for _, d := range c.doubts[k.name] {
		d.lapse()
	}
}

// lapse notes that a wildcard may have been forgotten, or the type, and the doubts with it.
func (d *doubt) lapse() {
	for name := range d.names {
		d.lapsed[name] = true
	}
	d.lapsed[wildcard] = d.lapsed[wildcard] || d.hidden != 0
	clear(d.names)
	d.hidden, d.was = 0, cmp.Or(d.hidden, d.was)
}

// mayDoubt reports whether a name is in doubt on a lane, or was and may be still.
func (c *Checker) mayDoubt(k string, byWildcard bool, name string) bool {
	d := c.doubts[k][byWildcard]
	return d != nil && (d.lapsed[name] || d.lapsed[wildcard] && c.mayHide(d, k, byWildcard, name)) || c.doubted(k, byWildcard, name)
}

// doubted reports whether a name is in doubt on a lane, since an answer was faulty.
func (c *Checker) doubted(k string, wildcard bool, name string) bool {
	d := c.doubts[k][wildcard]
	if d == nil {
		return false
	}
	_, faulty := d.names[name]
	return faulty || d.hidden != 0 && c.mayHide(d, k, wildcard, name)
}

// hides reports whether a fault that hid its name is open: it may have been about what has expired.
func (c *Checker) hides(k kind, wildcard bool) bool {
	d := c.doubts[k.name][wildcard]
	return d != nil && d.hidden != 0
}

// mayHide reports whether a fault that hid its name may have been about a name.
func (c *Checker) mayHide(d *doubt, k string, wildcard bool, name string) bool {
	_, known := c.known[k].voice(wildcard).words[name]
	return !known && (wildcard || d.asked[name])
}

// inDoubt reports whether a client must not be told that a name is gone, because of a fault in what was said
// by name, if it asks for the name, or else by wildcard. What it came with and does not ask for may be
// what a hidden name leads to, until a sound answer says what leads there (NAME-5). A full-state set says what its
// names lead to: it is withheld only if one of these has no answer, and may be hidden (DOWN-SOTW-7).
func (c *Checker) inDoubt(k kind, name string, t *topic, brought bool) bool {
	i := &t.interest
	if brought && !i.Names[name] && !i.Wildcard {
		d := c.doubts[k.name][false]
		return d != nil && d.hidden != 0 && !d.said[name] && slices.ContainsFunc(slices.Collect(maps.Keys(i.Names)), func(asked string) bool {
			return !t.sotw || c.mayHide(d, k.name, false, asked) && !c.known[k.name].byName.matches(asked, surely)
		})
	}
	if i.Names[name] {
		return c.doubted(k.name, false, name) && !c.known[k.name].byName.absent(name)
	}
	return i.Wildcard && c.doubted(k.name, true, name) && !c.known[k.name].byWildcard.absent(name)
}
