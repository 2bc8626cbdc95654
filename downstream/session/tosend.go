package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// toSend has the reasons to look for something to send of one type, beside what the client holds. Each
// says where to look; some also require sending what does not differ from what the client holds. A reason that is
// noted several times is one reason, and an answer clears those of its name.
//
// A new reason is a field here. It must be counted in pending or owesAnswers, so that somebody looks; in mustResend, or in
// the collector that sends it; and in clear, so that it ends. Told.Again makes nobody look: the name must be
// marked as changed, too (warms).
type toSend struct {
	marked  bool           // there are marks in the mailbox
	changed pile[cache.ID] // names whose answer may have changed
	asked   pile[cache.ID] // names that the client wants an answer to (DOWN-DELTA-7)
	failed  pile[cache.ID] // names whose error is to be sent
	// erred has the names whose error was sent to the client. The next resource says that the
	// error is over, so it is sent even if it does not differ (ERR-8).
	erred    map[cache.ID]struct{}
	touched  touched      // what of an exact client has to be looked at
	refused  pile[string] // names that are not served: asked for by locator, or globs of a SotW client (NAME-18, NAME-11)
	excess   excess       // those for which there was no room (VALID-8)
	unserved []string     // those of the newest request, each once, in order; only for SotW

	members       bool // the wildcard's set changed
	wildcardAsked bool // the wildcard's set was asked for
	// doubtOver says that upstream's word on something uncertain has come.
	doubtOver bool

	// tooLarge has the resources whose omission is reported once the wildcard is answered
	// (ERR-13).
	tooLarge []*cache.Resource
}

// pending reports whether there are changes to push.
func (t *toSend) pending() bool {
	named := t.changed.len() + t.failed.len()
	looks := t.doubtOver || t.touched.any()
	return named > 0 || t.members || looks
}

// due reports whether there may be something to send now.
func (t *toSend) due() bool { return t.marked || t.pending() || t.owesAnswers() }

// owesAnswers reports whether the client has asked for something, which is to be answered, be it with an error.
func (t *toSend) owesAnswers() bool {
	errors := t.refused.len() + t.excess.names.len() + len(t.tooLarge)
	return t.wildcardAsked || t.asked.len()+errors > 0
}

// mustResend reports whether everything that a name leads to is sent whatever the client holds. Any
// resource that is news to the client also says that an error is over, so an error alone requires
// this only if none is news. A rejected resource is not sent for it (NACK-4).
func (x *exchange) mustResend(v fanout.View, id cache.ID, a *cache.Answer, news func(*cache.Resource) bool) bool {
	_, erred := x.erred[id]
	if over := erred && a.Error == nil && !x.hasRejected(a.Seq); !over {
		return v.Told(id).Again()
	}
	return v.Told(id).Again() || !slices.ContainsFunc(a.Resources(), news)
}

// clear notes that the answer of a name was sent.
func (t *toSend) clear(id cache.ID, a *cache.Answer) {
	if a.Error == nil {
		drop(&t.erred, id)
	}
}

// answers notes that a resource is sent, which answers each name that leads to it alone.
func (x *exchange) answers(v fanout.View, r *cache.Resource) {
	if x.asked.len()+len(x.erred) == 0 {
		return
	}
	for name := range r.Names() {
		if id, ok := v.Lookup(name); ok {
			if a := v.Answer(id); a.Resource == r && len(a.More) == 0 {
				x.clear(id, &a)
				x.asked.drop([]cache.ID{id})
			}
		}
	}
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
