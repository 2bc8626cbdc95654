package session

import (
	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// keepsClaim reports whether the client keeps what it came with: what a name leads to is known from disk only (RECON-19).
func (x *exchange) keepsClaim(v fanout.View, id cache.ID, r *cache.Resource) bool {
	e := x.exact.lookUp(r.Hash, r.Name)
	return e.claims() && e.version != r.Version && v.Restored(id)
}

// collectCopies lists the resources that a name leads to and that the client does not hold, or must be sent again.
func (x *exchange) collectCopies(v fanout.View, id cache.ID, a *cache.Answer, forced bool, p *plan) {
	told, tooLarge, kept, older := v.Told(id), 0, 0, false
	for _, r := range a.Resources() {
		e := x.exact.lookUp(r.Hash, r.Name)
		switch {
		case x.keepsClaim(v, id, r):
			x.touched.open = true
			kept++
		case e.claims() && e.version == r.Version && !told.Again():
			x.agrees(e, r, p)
		case e != nil && e.brought && e.at == p.position: // another of its names has led here already
		case !forced && x.keeps(v, r, told.At()):
			x.exact.unclaim(e)
		case x.leavesOut(v, r, p):
			tooLarge++
			older = older || e != nil
		default:
			x.sends(v, r, p)
			x.answers(v, r)
		}
	}
	switch {
	case tooLarge == len(a.Resources()) && older:
		v.Tell(id, fanout.Brought)
	case tooLarge == len(a.Resources()) && !told.Copy():
		v.Tell(id, 0) // so that the removal is sent when it is gone (MISS-10)
	case tooLarge+kept < len(a.Resources()):
		v.Tell(id, fanout.ToldCopy(p.position))
	}
}
