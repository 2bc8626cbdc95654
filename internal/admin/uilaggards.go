package admin

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/console"
)

// outOfIt counts the clients that are out of step with a type or a resource.
type outOfIt struct{ Rejected, Stale int }

// Marks say how many, those that reject first; nil: none is out of step.
func (t outOfIt) Marks() (marks []mark) {
	if t.Rejected > 0 {
		marks = append(marks, mark{"bad", console.Count(t.Rejected) + " rejected"})
	}
	if t.Stale > 0 {
		marks = append(marks, mark{"warn", console.Count(t.Stale) + " stale"})
	}
	return marks
}

type (
	typeOfGroup struct {
		group string
		typ   cache.TypeURL
	}
	nameOfGroup struct{ group, name string }
)

// laggards are those of each type of each group.
func (f *fleet) laggards() map[typeOfGroup]outOfIt {
	found := make(map[typeOfGroup]outOfIt)
	for i := range f.rows {
		for _, t := range f.rows[i].Types {
			key := typeOfGroup{t.Group, t.Type}
			of := found[key]
			switch t.State {
			case Rejected:
				of.Rejected++
			case Stale, NotSent:
				of.Stale++
			default:
				continue
			}
			found[key] = of
		}
	}
	return found
}

// lookingFor bounds the time for the names of clients that are out of step: there may be many of either.
const lookingFor = 80 * time.Millisecond

// lookForLaggards counts for each resource of a type the clients that are out of step with it. partly: there was no time
// for all clients, of which the worst were looked at.
func (u *ui) lookForLaggards(all *fleet, typ cache.TypeURL) (found map[nameOfGroup]outOfIt, partly bool) {
	begin := time.Now()
	filter := listFilter{url: typ, anyCluster: true, states: []ClientState{Rejected, Stale, NotSent}}
	found = make(map[nameOfGroup]outOfIt)
	for _, i := range filter.of(all) {
		if time.Since(begin) > lookingFor {
			return found, true
		}
		r := &all.rows[i]
		group := r.typ(typ).Group
		for _, n := range u.relay.ClientLacks(r.Stream, typ) {
			key := nameOfGroup{group, n.Name}
			of := found[key]
			switch n.Step {
			case session.StepRejected:
				of.Rejected++
			case session.StepUnacked, session.StepUnsent, session.StepStays:
				of.Stale++
			default: // the control plane has not answered, or nobody knows what the client has
				continue
			}
			found[key] = of
		}
	}
	return found, false
}

// typ is one type of a client, which has it.
func (r *row) typ(t cache.TypeURL) *rowType {
	return &r.Types[slices.IndexFunc(r.Types, func(of rowType) bool { return of.Type == t })]
}

// withLaggards are the resources that a filter leaves and with which clients are out of step, the worst first, and not more
// than a page of them; hidden is how many others there are.
func (u *ui) withLaggards(found map[nameOfGroup]outOfIt, filter resourceFilter, hidden *int) (list []entry) {
	worse := func(a, b nameOfGroup) int {
		return cmp.Or(cmp.Compare(found[b].Rejected, found[a].Rejected), cmp.Compare(found[b].Stale, found[a].Stale), strings.Compare(a.name, b.name), strings.Compare(a.group, b.group))
	}
	keys := slices.SortedFunc(maps.Keys(found), worse)
	keys = slices.DeleteFunc(keys, func(k nameOfGroup) bool { return !filter.groups(k.group) || !filter.named(k.name) })
	if *hidden = max(len(keys)-pageNames, 0); *hidden > 0 {
		keys = keys[:pageNames]
	}
	if len(keys) == 0 {
		return nil
	}
	filter.among = make(map[string]bool, len(keys))
	for _, k := range keys {
		filter.among[k.name] = true
	}
	list, _ = u.collect(cursor{}, maxLimit, &filter)
	key := func(e entry) nameOfGroup { return nameOfGroup{e.Group, e.Name} }
	list = slices.DeleteFunc(list, func(e entry) bool { return !slices.Contains(keys, key(e)) })
	slices.SortStableFunc(list, func(a, b entry) int { return worse(key(a), key(b)) })
	return list
}
