package twin

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Checker reads the log of all messages, one at a time, and notes what breaks a
// guarantee (reliability.md §3) or a rule of one stream (protocol.md). checker_up.go is
// the control planes' side, checker_client.go the clients'.
type Checker struct {
	// What is expected of time.
	linger, missing, settle, ackTimeout time.Duration

	now     time.Time
	events  int                   // so far: requests of clients, and responses of the control plane
	known   map[string]*knowledge // by kind; of this life of the relay
	bodies  map[string]content
	streams map[int]*relayStream
	clients map[int]*clientState
	// wanted is when the last client gave a name up, by kind; since is the event with
	// which the first one asked for it.
	wanted map[string]map[string]time.Time
	since  map[string]map[string]int
	// lingerless are names that did not exist when they were given up (UP-7).
	lingerless map[string]map[string]bool
	// versions: content ⇔ version, over all lives of the relay (RECON-1, RECON-2).
	versionOf, contentOf map[string]string
	// before is what the last stream that carried a kind by name was subscribed to.
	before map[string]map[string]time.Time
	// proven is until when a stream of the relay's was known to work, since it had
	// answered, or lasted.
	proven time.Time
	// refused: the control plane has ended a stream for the sake of a type.
	refused bool
	// strikes count the streams that it has ended just after it was asked for a type.
	strikes map[string]int

	// disk is what was saved last, and restored when the last relay began with it.
	disk     *onDisk
	loaded   map[string]map[string]bool
	loadedAt time.Time

	// What the game's control planes are like.
	settings  Settings
	second    bool                 // there is another one
	remembers bool                 // of full-state types they send what nobody asks for (UP-9)
	picky     bool                 // they answer nobody who does not say where from
	ignores   bool                 // they take no notice of versions
	forgetful bool                 // SotW cannot say what is gone, save of full sets (TRANSLATE-7)
	uncertain bool                 // there were suspects, which do not linger (H-41)
	hungSince map[int]time.Time    // those that hang
	hanged    bool                 // one has
	late      bool                 // what is heard was said since one hung (over gRPC)
	crossed   map[string]bool      // what was said while it was given up, to be asked for again (servers.go)
	lapsedAt  map[string]time.Time // since when wildcards may be given up, by kind

	// What exemptions look at (open.go).
	about   *topic          // of the last response
	orphans map[string]bool // resources whose names were given up while an alias leads to them, by kind and name
	early   bool            // something came that was wanted, before it was asked for

	// Violations, each beginning with the id of what is broken; or the exemption that
	// covers the first one, and what it was.
	Violations []string
	Excused    *exemption
	Excuse     string
}

func newChecker(s Settings, bodies map[string]content) *Checker {
	c := &Checker{
		linger: s.Linger, settle: s.Settle, missing: missingAfter, ackTimeout: ackTimeout,
		bodies: bodies, clients: map[int]*clientState{}, wanted: map[string]map[string]time.Time{}, since: map[string]map[string]int{},
		versionOf: map[string]string{}, contentOf: map[string]string{}, strikes: map[string]int{}, lingerless: map[string]map[string]bool{}, orphans: map[string]bool{}, crossed: map[string]bool{},
		hungSince: map[int]time.Time{}, lapsedAt: map[string]time.Time{}, settings: s, second: s.Second != "", remembers: strings.Contains(s.Server, remembers), ignores: strings.Contains(s.Server, ignores), picky: strings.Contains(s.Server, picky),
	}
	c.relayStarted()
	for _, k := range kinds {
		c.wanted[k.name], c.since[k.name], c.lingerless[k.name] = map[string]time.Time{}, map[string]int{}, map[string]bool{}
	}
	return c
}

func (c *Checker) fail(rule, format string, a ...any) {
	said := rule + ": " + fmt.Sprintf(format, a...)
	if c.Excused != nil {
		return
	}
	if e := c.excused(rule); e != nil && len(c.Violations) == 0 {
		c.Excused, c.Excuse = e, said
		return
	}
	c.Violations = append(c.Violations, said)
}

// relayStarted: a relay has no streams at first, and knows nothing but what is on disk.
func (c *Checker) relayStarted() {
	clear(c.lapsedAt)
	c.known, c.streams, c.before, c.proven = map[string]*knowledge{}, map[int]*relayStream{}, map[string]map[string]time.Time{}, c.now
	for _, k := range kinds {
		c.known[k.name] = &knowledge{newVoice(), newVoice(), map[string]bool{}}
	}
	c.load()
}

// silence notes the names that have gone unanswered for too long (MISS-3), and what
// they led to and was not said again, though no version was shown of it (RECON-12).
func (c *Checker) silence() {
	for _, s := range c.streams {
		for kind, l := range s.lanes {
			v := c.known[kind].byName
			for name, since := range l.names {
				if _, known := v.words[name]; !l.wildcard && !known && c.now.Sub(since) >= c.missing && !v.matches(name, surely) && c.alive(s, since) {
					v.words[name] = word{silent: true, unvouched: !l.heard}
					c.lingerless[kind][name] = true
				}
			}
			if !l.wildcard && c.now.Sub(l.begun) >= missingExplicit {
				v.doubt(l.bare, l.shown)
			}
		}
	}
}

// isWanted: somebody wants a name now, or did not long ago (UP-7).
func (c *Checker) isWanted(k kind, name string) bool {
	if at, ok := c.wanted[k.name][name]; ok && c.now.Sub(at) <= c.linger+time.Second {
		return true
	}
	return slices.ContainsFunc(c.interests(k), func(i *Interest) bool {
		return i.Names[name] || name == wildcard && i.Wildcard
	})
}

// lingers: when the last stream worked, a name had not lingered for long enough. Until
// another one works, that goes on.
func (c *Checker) lingers(k kind, name string) bool {
	at, ok := c.wanted[k.name][name]
	return ok && at.Add(c.linger+time.Second).After(c.proven)
}

// lapsed: nobody wants the wildcard, and no stream carries it, or not for much longer,
// so that the relay has forgotten its set.
func (c *Checker) lapsed(k kind) bool {
	if slices.Contains(Union(c.interests(k)), wildcard) {
		return false
	}
	if left, ok := c.wanted[k.name][wildcard]; ok && c.now.Sub(left) >= c.linger {
		return true // it may be about to say so
	}
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && l.wildcard && len(l.names) > 0 {
			return false
		}
	}
	return true
}

// interests are those of all clients in a type.
func (c *Checker) interests(k kind) (all []*Interest) {
	for _, cl := range c.clients {
		if t := cl.topics[k.name]; cl.open && t != nil {
			all = append(all, &t.interest)
		}
	}
	return all
}

const notFound = 5

// covered: the relay has asked for a resource, or, not surely, is about to.
func (c *Checker) covered(k kind, l *relayLane, name string, aliases []string) (covered, surely bool) {
	for asked := range l.names {
		if answers(name, aliases, asked) {
			return true, true
		}
	}
	return c.isWanted(k, name) || slices.ContainsFunc(aliases, func(alias string) bool { return c.isWanted(k, alias) }), false
}

// changed: clients may be told of these names again (DOWN-DELTA-14).
func (c *Checker) changed(k kind, names []string) {
	for _, cl := range c.clients {
		if t := cl.topics[k.name]; t != nil {
			for _, name := range names {
				t.owed[name] = true
			}
		}
	}
}

// settled notes which wildcard sets are complete by now (RECON-16).
func (c *Checker) settled() {
	for _, s := range c.streams {
		for kind, l := range s.lanes {
			if !l.wildcard && c.now.Sub(l.begun) >= settleCap {
				c.known[kind].byName.warm = false
			}
			if l.wildcard && !l.first.IsZero() && c.now.Sub(l.first) >= c.settle {
				c.whole(l, c.known[kind].byWildcard)
			}
		}
	}
}

// grows: a wildcard's set may be waiting for more.
func (c *Checker) grows(k kind) bool {
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && l.wildcard && c.now.Sub(l.latest) < c.settle {
			return true
		}
	}
	return false
}
