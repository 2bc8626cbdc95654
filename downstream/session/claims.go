package session

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// While the control plane is away, what clients come back with cannot be reconciled, and stays. They mostly come with the same
// versions, so equal tables of claims are kept once, as package unique does with values.

// claims is a table of claims that nobody changes.
type claims struct {
	table []entry
	count int
}

// leastShared is how many claims are worth sharing.
const leastShared = 64

var (
	claimSeed = maphash.MakeSeed()
	claimsMu  sync.Mutex // the last of all locks: nothing is taken under it
	// claimsOf has the tables that some exact client shares, by the sum of the hashes of their entries.
	claimsOf = make(map[uint64]weak.Pointer[claims])
)

// share has a client that still holds nothing but claims keep them together with others.
func (e *exact) share() {
	if shared := e == nil || e.shared != nil; shared || e.claims < max(e.count, leastShared) {
		return
	}
	sum := uint64(0)
	for v := range e.all() {
		sum += maphash.Comparable(claimSeed, [2]string{v.name, v.version})
	}
	claimsMu.Lock()
	defer claimsMu.Unlock()
	if c := claimsOf[sum].Value(); c != nil && e.equals(c) {
		e.shared, e.table, e.taken = c, c.table, e.count
		return
	}
	e.room(0) // without the places that giving names up has left
	c := &claims{e.table, e.count}
	e.shared, claimsOf[sum] = c, weak.Make(c)
	runtime.AddCleanup(c, dropClaims, sum)
}

func dropClaims(sum uint64) {
	claimsMu.Lock()
	defer claimsMu.Unlock()
	if claimsOf[sum].Value() == nil {
		delete(claimsOf, sum)
	}
}

// equals reports whether a shared table says the same.
func (e *exact) equals(c *claims) bool {
	other := exact{table: c.table, count: c.count}
	for v := range e.all() {
		if o := other.lookUp(v.hash, v.name); o == nil || o.version != v.version {
			return false
		}
	}
	return c.count == e.count
}

// own makes the table the client's own, since it is about to change, and returns where an entry is now.
func (e *exact) own(v *entry) *entry {
	if e.shared == nil {
		return v
	}
	e.shared, e.table = nil, slices.Clone(e.table)
	if v != nil {
		v = e.lookUp(v.hash, v.name)
	}
	return v
}
