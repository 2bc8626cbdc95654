package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// debts are the reasons to look for something to send of one type, beside what the client holds.
// Each says where to look; some also require sending what does not differ from what the client
// holds. A debt that is noted several times is one debt, and an answer pays what the name owes.
//
// A new reason to resend something is a field here. It must be counted in pending or due, so that
// somebody looks; in owes, or in the collector that sends it; and in paid and forgive, so that
// it ends. Told.Again makes nobody look: the name must be marked as changed, too (warms). A
// version that does not count any more is no debt: exact.void, or for a whole set a cleared version
// (sotwState.nameNews).
type debts struct {
	marked  bool           // there are marks in the mailbox
	changed pile[cache.ID] // names whose answer may have changed
	asked   pile[cache.ID] // names that the client wants an answer to (DOWN-DELTA-7)
	failed  pile[cache.ID] // names whose error is to be sent
	// erred has the names whose error was sent to the client. The next resource says that the
	// error is over, so it is sent even if it does not differ (ERR-8).
	erred map[cache.ID]struct{}
	// released has the resources that the client has and its interest may no longer cover: a name
	// led to them and no longer does (NAME-5), they were given up under the wildcard (WILD-8), or
	// the client came with them (DOWN-DELTA-11).
	released map[string]released
	refused  pile[string] // names asked for by locator, and globs, which are not served (NAME-18, NAME-11)
	excess   excess       // those for which there was no room (VALID-8)
	unserved []string     // those of the newest request, each once, in order; only for SotW

	members       bool // the wildcard's set changed
	wildcardAsked bool // the wildcard's set was asked for
	// doubtOver says that upstream's word on something in doubt has come.
	doubtOver bool

	// tooLarge has the resources whose omission is reported once the wildcard is answered
	// (ERR-13).
	tooLarge []*cache.Resource
}

// released is what is known of a resource that the client's interest may no longer cover.
type released struct {
	unknown bool // a name without an answer may lead to it
	brought bool // the client came with it, and no name has led to it since
	// givenUp says that it was given up under the wildcard, and is sent once more, or its removal,
	// whatever the client holds (WILD-8).
	givenUp bool
	now     bool // it was given up under the wildcard since the last look
}

// pending reports whether there are changes to push.
func (d *debts) pending() bool {
	named := d.changed.len() + len(d.released) + d.failed.len()
	return named > 0 || d.members || d.doubtOver
}

// due reports whether there may be something to send now.
func (d *debts) due() bool { return d.marked || d.pending() || d.owesAnswers() }

// owesAnswers reports whether the client has asked for something, which is to be answered, be it with an error.
func (d *debts) owesAnswers() bool {
	errors := d.refused.len() + d.excess.names.len() + len(d.tooLarge)
	return d.wildcardAsked || d.asked.len()+errors > 0
}

// owes reports whether everything that a name leads to is sent whatever the client holds. Any
// resource that is news to the client also says that an error is over, so an error alone requires
// this only if none is news. A rejected resource is not sent for it (NACK-4).
func (x *exchange) owes(v fanout.View, id cache.ID, a *cache.Answer, news func(*cache.Resource) bool) bool {
	_, erred := x.erred[id]
	if over := erred && a.Error == nil && !x.hasRejected(a.Seq); !over {
		return v.Told(id).Again()
	}
	return v.Told(id).Again() || !slices.ContainsFunc(a.Resources(), news)
}

// forgive drops the errors of names that are about to be given up: their IDs may be reused soon.
func (x *exchange) forgive(names []string) {
	if len(names) == 0 || len(x.erred) == 0 {
		return
	}
	x.sub.Read(func(v fanout.View) {
		for _, name := range names {
			if id, ok := v.Lookup(name); ok {
				drop(&x.erred, id)
			}
		}
	})
}

// paid notes that the answer of a name was sent.
func (d *debts) paid(id cache.ID, a *cache.Answer) {
	if a.Error == nil {
		drop(&d.erred, id)
	}
}

// answers notes that a resource is sent, which answers each name that leads to it alone.
func (x *exchange) answers(v fanout.View, r *cache.Resource) {
	if x.asked.len()+len(x.erred) == 0 {
		return
	}
	for name := range r.Names() {
		if id, ok := v.Lookup(name); ok {
			switch a := v.Answer(id); {
			case a.Resource == r && len(a.More) == 0:
				x.paid(id, &a)
				x.asked.drop([]cache.ID{id})
			case x.delta && slices.Contains(x.asked.items, id) && slices.Contains(a.Resources(), r): // the rest waits as a change (ORDER-3)
				x.asked.drop([]cache.ID{id})
				if !x.awaited.has(name) { // DOWN-DELTA-7
					x.answerAgain(v, id, r)
				}
			}
		}
	}
}

// release marks resources to which a name no longer leads, so that they are looked at.
func (d *debts) release(names ...string) {
	for _, name := range names {
		was := d.released[name]
		put(&d.released, name, released{givenUp: was.givenUp, now: was.now})
	}
}

// leaves does the same for resources that were given up under the wildcard.
func (d *debts) leaves(names ...string) {
	for _, name := range names {
		put(&d.released, name, released{givenUp: true, now: true})
	}
}

// takeLeft returns these resources, and no longer looks at them.
func (d *debts) takeLeft() (names []string) {
	for name, as := range d.released {
		if as.givenUp {
			delete(d.released, name)
			names = append(names, name)
		}
	}
	return names
}

// put sets a value in a map that exists only while it is not empty.
func put[M ~map[K]V, K comparable, V any](m *M, key K, value V) {
	if *m == nil {
		*m = make(M)
	}
	(*m)[key] = value
}

// drop deletes a value from such a map.
func drop[M ~map[K]V, K comparable, V any](m *M, key K) {
	if delete(*m, key); len(*m) == 0 {
		*m = nil
	}
}
