package relay

import (
	"fmt"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/share"
)

// Who has which groups, and which types of a group: it matters when there is no room for more (VALID-8). A group or type
// is the first client's that still has it, or nobody's who can lose it while an exempt client has it.

const (
	// atOnce is how long a group has clients at most that is the first to go: it may have been made up.
	atOnce = 5 * time.Second
	// maxKinds bounds the types of a group that the protocol does not name.
	maxKinds = 1024
)

// members are the clients of a group that ask for a type.
type members struct {
	url   cache.TypeURL
	entry *share.Entry[*members] // nil: the protocol names the type
	all   map[*member]struct{}
	by    owners
}

// member is one of them.
type member struct {
	of       *members
	claimant *Claimant
	owner    owner
	end      func(*session.End) // nil: it cannot be ended
}

// owner is whose a client is: a holder, or all those who are exempt.
type owner struct {
	holder string
	exempt bool
}

func ownerOf(client session.Peer) owner {
	if client.Relay {
		return owner{exempt: true}
	}
	return owner{holder: client.Holder}
}

// owners counts the clients of an entry by whose they are.
type owners map[owner]int

// comes counts a client in. The entry becomes its owner's if it is the first one or exempt.
func comes[V any](l *share.Ledger[V], e *share.Entry[V], by owners, o owner) {
	if len(by) == 0 || o.exempt {
		l.Move(e, o.holder, o.exempt)
	}
	by[o]++
}

// goes counts a client out. If the entry was its owner's and that one has no other client, it becomes that of one who has.
// That is no exempt one, whose the entry would have been already.
func goes[V any](l *share.Ledger[V], e *share.Entry[V], by owners, o owner) {
	if by[o]--; by[o] > 0 {
		return
	}
	delete(by, o)
	if holder, exempt := e.Holder(); (owner{holder, exempt}) != o {
		return
	}
	for next := range by {
		l.Move(e, next.holder, next.exempt)
		return
	}
}

// displaced are clients that have to go, and why.
type displaced []departure

type departure struct {
	client *member
	why    *session.End
}

// end ends them. No lock may be held.
func (d displaced) end() {
	for _, out := range d {
		if out.client.end != nil {
			out.client.end(out.why)
		}
	}
}

// admit gives a new group its place, or refuses it because there is no room. Room is made by a group that stays in an
// outage and has nothing, or by one of whoever has most of them. While its control plane is not alive a group that
// has something never goes (NODE-10).
func (g *groups) admit(p Place, client session.Peer) (e *share.Entry[*group], gone displaced, end *session.End) {
	o := ownerOf(client)
	s := g.sources[p.source]
	e = s.totals.Enter(o.holder, o.exempt || p.Name == "", nil)
	most := 0
	if end = g.Admit(g.taken(p)); end != nil {
		if g.dropBare(p.source) {
			end = g.Admit(g.taken(p))
		}
		if end != nil {
			most = s.totals.Used() // it is full, whatever the number is
		}
	}
	if end != nil && most == 0 {
		return nil, nil, end
	}
	got, groups := s.totals.Take(e, 1, most, func(gr *group) bool { return gr.hub.Bare() || gr.client.Proven() })
	if got == 0 {
		return nil, nil, end
	}
	for _, gr := range groups {
		g.log.Warn("a group is ended, because there are as many as there may be and a client with fewer groups needs one; raise groups.max, or use a coarser groups.key", "group", gr.hub.Name(), "group_key", gr.name, "clients", gr.users)
		gone = append(gone, gr.everybody()...)
		g.drop(gr) // its content does not go to the disk: there is no bound on how many are displaced
	}
	return e, gone, nil
}

// dropBare ends a group that stays in an outage and has nothing.
func (g *groups) dropBare(source int) bool {
	for _, gr := range g.byName {
		if gr.place.source == source && gr.leaving && gr.hub.Bare() {
			g.end(gr)
			return true
		}
	}
	return false
}

// everybody are the clients of a group that is displaced.
func (gr *group) everybody() (all displaced) {
	why := &session.End{Reason: session.DisplacedGroup, Message: "xds-relay: there are as many groups as groups.max allows, and a client with fewer groups needed one; connect again, to another replica if there is one"}
	for _, of := range gr.kinds {
		for m := range of.all {
			all = append(all, departure{m, why})
		}
	}
	return all
}

// ask counts a client of a type, or refuses it because the group has too many types.
func (gr *group) ask(t cache.TypeURL, client session.Peer) (*member, displaced, *session.End) {
	of, gone := gr.kinds[t], displaced(nil)
	if of == nil {
		of = &members{url: t, all: make(map[*member]struct{}), by: make(owners)}
		if t.Short() == cache.OtherShort {
			o := ownerOf(client)
			of.entry = gr.types.Enter(o.holder, o.exempt, of)
			got, others := gr.types.Take(of.entry, 1, maxKinds, nil)
			if got == 0 {
				return nil, nil, &session.End{Reason: session.Overcrowded, Message: fmt.Sprintf("the clients of this group ask for %d types already that the protocol does not name", maxKinds)}
			}
			gone = gr.dropTypes(others)
		}
		if gr.kinds == nil {
			gr.kinds = make(map[cache.TypeURL]*members)
		}
		gr.kinds[t] = of
	}
	m := &member{of: of, owner: ownerOf(client), end: client.End}
	of.all[m] = struct{}{}
	if of.entry != nil {
		comes(&gr.types, of.entry, of.by, m.owner)
	}
	return m, gone, nil
}

// dropTypes forgets types that are displaced, and returns their clients.
func (gr *group) dropTypes(types []*members) (gone displaced) {
	why := &session.End{Reason: session.DisplacedType, Message: fmt.Sprintf("xds-relay: the clients of this group ask for %d types that the protocol does not name, and a client with fewer needed one; ask for fewer", maxKinds)}
	for _, of := range types {
		delete(gr.kinds, of.url)
		for m := range of.all {
			gone = append(gone, departure{m, why})
		}
	}
	return gone
}

// forget counts a client of a type out.
func (gr *group) forget(m *member) {
	delete(m.of.all, m)
	if m.of.entry != nil {
		goes(&gr.types, m.of.entry, m.of.by, m.owner)
	}
	if len(m.of.all) > 0 {
		return
	}
	if m.of.entry != nil {
		gr.types.Leave(m.of.entry)
	}
	if gr.kinds[m.of.url] == m.of {
		delete(gr.kinds, m.of.url)
	}
}
