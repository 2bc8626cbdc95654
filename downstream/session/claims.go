package session

import (
	"hash/maphash"
	"runtime"
	"sync"
	"weak"
)

// While the control plane is away, what clients come back with cannot be reconciled, and stays. Clients that come
// back together mostly come with the same versions, so equal tables of claims are kept once, as package
// unique does with values. Whoever changes one gets a copy first (exact.own).

// claims is a table of claims that nobody changes.
type claims struct{ table []entry }

// leastShared is how many claims are worth sharing.
const leastShared = 64

var (
	claimSeed = maphash.MakeSeed()
	claimsMu  sync.Mutex
	// claimsOf has the tables that some exact client shares, by the sum of the hashes of their entries.
	claimsOf = make(map[uint64]weak.Pointer[claims])
)

// share has a client that still holds nothing but claims keep them together with others.
func (e *exact) share() {
	if !e.open() || e.shared != nil {
		return
	}
	if e.claims < e.count || e.count < leastShared {
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
	e.room(0) // without free places that this client may have needed
	c := &claims{e.table}
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
	other := exact{table: c.table, count: len(c.table)}
	n := 0
	for _, v := range c.table {
		if v.held {
			n++
		}
	}
	if n != e.count {
		return false
	}
	for v := range e.all() {
		if o := other.lookUp(v.hash, v.name); o == nil || o.version != v.version {
			return false
		}
	}
	return true
}

// own makes the table the client's own, since it is about to change, and returns where an entry of it is now.
func (e *exact) own(v *entry) *entry {
	if e.shared == nil {
		return v
	}
	e.shared, e.table = nil, append([]entry(nil), e.table...)
	if v == nil {
		return nil
	}
	return e.lookUp(v.hash, v.name)
}
