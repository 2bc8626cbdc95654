package fanout

import "github.com/xds-relay/xds-relay/cache"

// Names that nobody wants any more are forgotten here.

// forget drops what is known of a name that nobody wants (UP-8, H-18). remains reports which
// resources upstream keeps up to date all the same.
func (n *namedLane) forget(name string, remains func(*cache.Resource) bool) {
	n.x.hub.forgotten.Add(1)
	if id, ok := n.Find(name); ok {
		n.x.unwanted.note(id, name)
	}
	delete(n.again, name)
	delete(n.refused, name)
	delete(n.complete, name)
	if id, ok := n.Find(name); ok {
		n.dirty.remove(id) // another name may get the ID
		if n.Asked(id) {
			delete(n.faults.malformed, name) // else no unsubscribe makes upstream send the name again (ERR-10)
		}
		bodies := n.confirmedBodies(id)
		if n.x.fullState() && n.Asked(id) {
			n.x.unsolicited.giveUp(name)
		}
		n.Forget(id, remains)
		n.x.unsolicited.release(bodies)
		n.Unpin(id)
	}
	delete(n.guard.held, name)
}

// forgetOthers forgets the names that nobody wants and that Changes has not given up yet: the
// stream that begins does not ask for them, so nothing keeps them up to date (UP-8, RECON-7).
func (n *namedLane) forgetOthers() {
	remains := n.x.remains()
	for id, name := range n.Interned() {
		if !n.x.desired(id) {
			n.forget(name, remains)
		}
		n.Ask(id, false)
	}
}

// remains returns a function that reports whether upstream keeps a resource up to date although
// some of its names are given up: another of its names is wanted. It judges each resource once,
// however many of its names go.
func (x *index) remains() func(*cache.Resource) bool {
	judged := make(map[*cache.Resource]bool)
	return func(r *cache.Resource) bool {
		remains, ok := judged[r]
		if !ok {
			remains = goesBy(r, x.desiredName)
			judged[r] = remains
		}
		return remains
	}
}

// confirmedBodies returns the confirmed resources that a name leads to, if unsolicited has a stream for
// which they may have to be remembered.
func (n *namedLane) confirmedBodies(id cache.ID) (bodies []cache.Received) {
	if n.x.unsolicited.stream == 0 {
		return nil
	}
	for r := range n.Leads(id) {
		if _, removed := n.guard.held[r.Name]; removed || !n.Announced(r.Name) {
			continue // this stream has not announced it, or has removed it
		}
		own, _ := n.Find(r.Name)
		b := cache.Received{Resource: r, Upstream: n.Upstream(own)}
		if _, unconfirmed := n.Age(r.Name); unconfirmed || n.Expires(r.Name) {
			b.TTL = 1 // it is not kept
		}
		bodies = append(bodies, b)
	}
	return bodies
}
