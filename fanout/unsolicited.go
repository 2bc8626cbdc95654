package fanout

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/xds-relay/xds-relay/cache"
)

// Resources of a full-state type that upstream sends on a stream although nobody has asked for them
// (UP-9, H-31). A server that sends everything, whatever the names, believes that it has delivered
// them, and never answers a later subscribe. So they are kept while the stream lives, apart from
// the Tables: no wildcard's set, version map or snapshot has them. A client that asks for one later
// is answered at once. On such a stream a name that nobody wants any more is not
// unsubscribed: the server would go on sending its changes, but not its removal.

// unaskedFactor is how many times the bound of one group all groups may keep together.
const unaskedFactor = 4

// Unasked bounds the resources that all groups keep although nobody has asked for them. A resource
// that several groups keep is counted, and held, once.
type Unasked struct {
	max atomic.Int64 // bytes of one group

	mu     sync.Mutex // taken under the lock of a type, and nothing under it
	shares map[unaskedKey]*unaskedShare
	bytes  int
}

type unaskedKey struct{ name, version string }

type unaskedShare struct {
	*cache.Resource
	groups int
}

// NewUnasked returns a bound of that many bytes for one group, and four times as many for all of
// them.
func NewUnasked(bytes int) *Unasked {
	u := &Unasked{shares: make(map[unaskedKey]*unaskedShare)}
	u.Resize(bytes)
	return u
}

// Resize changes the bound. Resources beyond a smaller bound are dropped when others arrive.
func (u *Unasked) Resize(bytes int) { u.max.Store(int64(bytes)) }

// take returns the resource to keep, which another group may share, or nil if there is no room.
func (u *Unasked) take(r *cache.Resource) *cache.Resource {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := unaskedKey{r.Name, r.Version}
	if s := u.shares[key]; s != nil {
		s.groups++
		return s.Resource
	}
	if int64(u.bytes+r.Size()) > unaskedFactor*u.max.Load() {
		return nil
	}
	u.shares[key] = &unaskedShare{r, 1}
	u.bytes += r.Size()
	return r
}

func (u *Unasked) leave(r *cache.Resource) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := unaskedKey{r.Name, r.Version}
	s := u.shares[key]
	if s.groups--; s.groups == 0 {
		delete(u.shares, key)
		u.bytes -= r.Size()
	}
}

// unsolicited is what the stream that carries a type's names has sent and no Table has. It ends with the
// stream.
type unsolicited struct {
	x      *index
	stream uint64 // zero: there is none
	// unasked: the stream has sent something that nobody had asked for. givenUp are the names that
	// were given up on this stream, since an answer for them may still arrive (H-32), true if without an
	// unsubscribe. When there are too many to remember, every name counts as given up.
	unasked bool
	givenUp map[string]bool
	// kept are the resources that nobody has asked for, the longest unchanged first. by maps an
	// alias, or a glob, to the names under which its resources are kept.
	kept *simplelru.LRU[string, cache.Received]
	by   map[string]map[string]struct{}
	// gone are the names and aliases of resources that are no longer here although upstream has not
	// removed them, each with the resource's own name. An alias whose resource is not in it does not
	// count. all: there are too many to remember.
	gone map[string]string
	all  bool
	// early are the resources that may be old answers (H-1). The stream that sent them may not send
	// them again.
	early map[string]bool
}

func (s *unsolicited) reset() {
	*s = unsolicited{
		x: s.x, givenUp: make(map[string]bool), by: make(map[string]map[string]struct{}),
		gone: make(map[string]string), early: make(map[string]bool),
	}
	// The only error is a size below one. How many there may be is a matter of bytes.
	s.kept, _ = simplelru.NewLRU(math.MaxInt, s.unkept)
}

// remembers reports whether there is anything to remember until the stream ends.
func (s *unsolicited) remembers() bool { return s.unasked || s.all || len(s.gone)+len(s.givenUp) > 0 }

// observe notes what an Update on the lane of names says about a full-state type, before it is
// applied.
func (s *unsolicited) observe(u *cache.Update) {
	if u.Stream == 0 {
		return
	}
	s.begin(u.Stream)
	if u.Full {
		s.keepOnly(u)
	}
	drop := func(name string) {
		s.kept.Remove(name)
		delete(s.gone, name)
	}
	for _, name := range u.Removed {
		drop(name)
	}
	for _, e := range u.Errors {
		if e.Status.GetCode() == cache.NotFound {
			drop(e.Name)
		}
	}
	for _, r := range u.Set {
		delete(s.early, r.Name)
		drop(r.Name) // there is a newer one, here or in the Table
	}
}

// begin notes which stream carries a full-state type's names. What an earlier one has sent, and which
// names were given up on it, says nothing any more.
func (s *unsolicited) begin(stream uint64) {
	if s.stream != stream {
		s.end()
	}
	s.stream = stream
}

// keepOnly drops the resources that a response with everything does not list.
func (s *unsolicited) keepOnly(u *cache.Update) {
	listed := make(map[string]struct{}, len(u.Set)+len(u.Kept))
	for _, r := range u.Set {
		listed[r.Name] = struct{}{}
	}
	for _, name := range u.Kept {
		listed[name] = struct{}{}
	}
	for _, name := range s.kept.Keys() {
		if _, ok := listed[name]; !ok {
			s.kept.Remove(name)
		}
	}
}

// take takes in a resource that nobody has asked for. It returns how many are dropped: this one, if
// it is not kept, and those that make room for it.
func (s *unsolicited) take(r cache.Received) (dropped int) {
	if s.stream == 0 || s.x.hub.config.Unasked == nil {
		return 1
	}
	if s.unasked = s.unasked || !s.late(r.Resource); s.unasked {
		return s.keep(r)
	}
	s.noteGone(r.Resource)
	return 1
}

// giveUp remembers a name that is given up, on a stream that sends unasked without an unsubscribe.
func (s *unsolicited) giveUp(name string) {
	if len(s.givenUp) < s.x.hub.config.Bounds.Gone {
		s.givenUp[name] = s.unasked
	}
}

// late reports whether a resource may be the answer for a name that was given up on this stream.
func (s *unsolicited) late(r *cache.Resource) bool {
	return len(s.givenUp) >= s.x.hub.config.Bounds.Gone || goesBy(r, func(name string) bool { _, is := s.givenUp[name]; return is })
}

// transient reports whether a resource is not for keeping while nobody subscribes to it.
func transient(r cache.Received) bool { return r.TTL != 0 || r.DoNotCache || r.Negative }

// keep keeps a resource if there is room. It returns how many are dropped.
func (s *unsolicited) keep(r cache.Received) (dropped int) {
	budget := s.x.hub.config.Unasked
	if transient(r) || int64(r.Size()) > budget.max.Load() {
		s.noteGone(r.Resource) // it is asked for again when somebody wants it
		return 1
	}
	s.kept.Remove(r.Name)
	shared := budget.take(r.Resource)
	for shared == nil && s.makeRoom() {
		shared = budget.take(r.Resource)
		dropped++
	}
	if shared == nil {
		s.noteGone(r.Resource)
		return dropped + 1
	}
	r.Resource = shared
	s.kept.Add(r.Name, r)
	for name := range r.Names() {
		if name == r.Name {
			continue
		}
		if s.by[name] == nil {
			s.by[name] = make(map[string]struct{})
		}
		s.by[name][r.Name] = struct{}{}
	}
	s.x.hub.unasked.Add(int64(r.Size()))
	for s.x.hub.unasked.Load() > budget.max.Load() && s.makeRoom() {
		dropped++
	}
	return dropped
}

// release takes in the bodies of a name that is given up. They are kept if the stream sends
// resources that nobody has asked for, and dropped otherwise (UP-8).
func (s *unsolicited) release(bodies []cache.Received) {
	for _, b := range bodies {
		switch {
		case s.x.named.Has(b.Name):
		case s.unasked:
			s.keep(b)
		default:
			s.noteGone(b.Resource)
		}
	}
}

// makeRoom drops the resource that has not changed for longest. It looks at this type alone, since
// each has a lock of its own.
func (s *unsolicited) makeRoom() bool {
	_, r, ok := s.kept.RemoveOldest()
	if ok {
		s.noteGone(r.Resource)
	}
	return ok
}

// unkept gives back the bytes of a resource that is no longer kept.
func (s *unsolicited) unkept(_ string, r cache.Received) {
	for name := range r.Names() {
		if delete(s.by[name], r.Name); len(s.by[name]) == 0 {
			delete(s.by, name)
		}
	}
	s.x.hub.unasked.Add(-int64(r.Size()))
	s.x.hub.config.Unasked.leave(r.Resource)
}

// noteGone notes that upstream has sent a resource that is no longer here.
func (s *unsolicited) noteGone(r *cache.Resource) {
	switch {
	case s.stream == 0 || s.all || s.x.named.Origin().SotW: // SotW answers every request
	case len(s.gone) >= s.x.hub.config.Bounds.Gone:
		s.gone, s.all = nil, true
	default:
		for name := range r.Names() {
			s.gone[name] = r.Name
		}
	}
}

// has reports whether upstream has sent what a name leads to on this stream and not removed it since,
// and it is no longer here. The stream's further silence about the name then proves nothing (UP-19).
func (s *unsolicited) has(name string, stream uint64) bool {
	if s.stream == 0 || s.stream != stream {
		return false
	}
	of, gone := s.gone[name]
	_, still := s.gone[of]
	return gone && still || s.all
}

// recall moves the resources that are kept and that a name leads to, which a client asks for, to the
// Table. One that a wildcard has left there stays, since upstream is asked for that again (WILD-11).
func (s *unsolicited) recall(name string) {
	for _, of := range append(slices.Sorted(maps.Keys(s.by[name])), name) {
		if r, ok := s.kept.Peek(of); ok && !s.x.named.Has(of) {
			s.kept.Remove(of)
			s.x.named.Set(r.Resource, r.Upstream, s.x.next())
		}
	}
}

// end forgets everything that the stream has sent.
func (s *unsolicited) end() {
	s.kept.Purge()
	s.reset()
}

// over notes that a stream has ended.
func (s *unsolicited) over(stream uint64) {
	if s.stream == stream || s.stream == 0 {
		s.end()
	}
}
