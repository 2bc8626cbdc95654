package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// debts are the reasons to look at what a client is to be told of one type, beside what it
// holds. Each says where to look, and some that something is to be told whether or not it
// differs from what the client holds. However often a debt is noted it is one; what is told
// pays whatever reasons there were for it.
//
// A new reason to send something again is a field here. It stands in pending or due, so that
// somebody looks; in owes, or in the collector that tells it; and in paid and forgiveID, so that
// it ends. To be forced alone makes nobody look: the name is marked as changed, too (warmsName).
type debts struct {
	changed pile[cache.ID] // names whose answer may have changed
	asked   pile[cache.ID] // names that the client wants an answer to (DOWN-DELTA-7)
	failed  pile[cache.ID] // names with an error to be told of
	// forced are names whose resources are sent whatever the client holds: their cluster was
	// sent (ORDER-4), or the client asked again and they have no answer yet. The position is
	// that of the demand.
	forced map[cache.ID]cache.Seq
	// erred are names whose error was sent to the client: the next resource says that the error
	// is over, whether or not it differs (ERR-8).
	erred map[cache.ID]struct{}
	// released are resources that the client has and its interest may not cover any more: a name
	// has led to them, and does so no more (NAME-5), or it came with them (DOWN-DELTA-11).
	// left are those given up under the wildcard, to be told once more (WILD-8).
	released map[string]released
	left     pile[string]
	refused  pile[string] // names asked for in a way that is not served (NAME-18)
	// warming are members of the wildcard's set, and what an alias leads to beside that, whose
	// cluster was sent (ORDER-4).
	warming pile[string]

	members       bool // the wildcard's set changed
	wildcardAsked bool // and was asked for
	// handed: what was waited for has come: a body (VALID-5), or word of what is in doubt.
	handed bool

	// tooLarge is what the client is to be told of, once the wildcard is answered (ERR-13).
	tooLarge []*cache.Resource

	renewed        pile[cache.ID] // names of which a TTL was renewed
	membersRenewed bool           // of some in the wildcard's set
}

// released is what is known of a resource that the client's interest may not cover any more.
type released struct {
	unknown bool // nobody knows which names it lists, so that any name without an answer may lead there
	brought bool // the client came with it, and no name has led to it since
}

// pending: there are changes that a push would tell.
func (d *debts) pending() bool {
	return d.changed.len() > 0 || len(d.released) > 0 || d.warming.len() > 0 || d.failed.len() > 0 || d.members || d.handed
}

// due: there may be something to send at this moment.
func (d *debts) due() bool {
	return d.pending() || d.asked.len() > 0 || d.wildcardAsked || d.refused.len() > 0 || d.left.len() > 0 ||
		d.renewed.len() > 0 || d.membersRenewed || len(d.tooLarge) > 0
}

// take adds the marks of a mailbox.
func (d *debts) take(m fanout.Marks) {
	d.changed.give(m.Content)
	d.failed.give(m.Errors)
	d.members = d.members || m.Wildcard
	d.renewed.give(m.Renewed)
	d.membersRenewed = d.membersRenewed || m.WildcardRenewed
	d.handed = d.handed || m.Again
}

// owes: all that a name leads to is to be told whatever the client holds. That an error is over
// is told by any of it that is news to the client.
func (d *debts) owes(id cache.ID, a *cache.Answer, news func(*cache.Resource) bool) bool {
	_, forced := d.forced[id]
	_, erred := d.erred[id]
	return forced || erred && a.Error == nil && (a.State != cache.Present || !slices.ContainsFunc(a.Resources(), news))
}

// forgiveID drops what is owed of a name that is given up.
func (d *debts) forgiveID(id cache.ID) {
	drop(&d.forced, id)
	drop(&d.erred, id)
}

// forgive drops what is owed of names that are about to be given up: their IDs may stand for
// others soon.
func (x *exchange) forgive(names []string) {
	if len(names) == 0 || len(x.forced)+len(x.erred) == 0 {
		return
	}
	x.sub.Read(func(v fanout.View) {
		for _, name := range names {
			if id, ok := v.Lookup(name); ok {
				x.forgiveID(id)
			}
		}
	})
}

// paid: what a name leads to was told.
func (d *debts) paid(id cache.ID, a *cache.Answer) {
	drop(&d.forced, id)
	if a.Error == nil {
		drop(&d.erred, id)
	}
}

// release has resources looked at that a name leads to no more.
func (d *debts) release(names ...string) {
	for _, name := range names {
		put(&d.released, name, released{})
	}
}

// put sets a value in a map that is there only while something is in it.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = value
}

// drop takes a value out of such a map.
func drop[K comparable, V any](m *map[K]V, key K) {
	if delete(*m, key); len(*m) == 0 {
		*m = nil
	}
}
