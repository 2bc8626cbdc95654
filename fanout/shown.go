package fanout

import (
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/xds-relay/xds-relay/cache"
)

// What upstream shows of a full-state type on a stream although nobody has asked for it
// (UP-9, H-31). Servers that send everything, whatever the names, believe it delivered
// and never answer a later subscribe. So it is kept while the stream lives, apart from
// the Tables: no wildcard's set, version map or snapshot has it. Who asks for it later is
// answered at once. On such a stream a name that nobody wants any more is not
// unsubscribed: the server would go on sending its changes, and say nothing of its end.

// unaskedFactor is how much more than one group all groups keep together.
const unaskedFactor = 4

// Unasked bounds what all groups keep of resources that nobody has asked for. A resource
// that several of them keep is counted, and held, once.
type Unasked struct {
	max atomic.Int64 // bytes of one group

	mu    sync.Mutex // taken under the lock of a type, and nothing under it
	held  map[unaskedKey]*unaskedShare
	bytes int
}

type unaskedKey struct{ name, version string }

type unaskedShare struct {
	*cache.Resource
	groups int
}

// NewUnasked returns a bound of so many bytes for one group, and four times as many for
// all of them.
func NewUnasked(bytes int) *Unasked {
	u := &Unasked{held: make(map[unaskedKey]*unaskedShare)}
	u.Resize(bytes)
	return u
}

// Resize changes the bound. What is too much then goes when more comes.
func (u *Unasked) Resize(bytes int) { u.max.Store(int64(bytes)) }

// take is the resource to keep, or nil if there is no room.
func (u *Unasked) take(r *cache.Resource) *cache.Resource {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := unaskedKey{r.Name, r.Version}
	if s := u.held[key]; s != nil {
		s.groups++
		return s.Resource
	}
	if int64(u.bytes+r.Size()) > unaskedFactor*u.max.Load() {
		return nil
	}
	u.held[key] = &unaskedShare{r, 1}
	u.bytes += r.Size()
	return r
}

func (u *Unasked) leave(r *cache.Resource) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := unaskedKey{r.Name, r.Version}
	s := u.held[key]
	if s.groups--; s.groups == 0 {
		delete(u.held, key)
		u.bytes -= r.Size()
	}
}

// shown is what the stream that carries a type's names has shown of it, as far as no
// Table has it. All of it dies with the stream.
type shown struct {
	hub   *Hub
	table *cache.Table // of the lane of names

	stream uint64 // zero: nothing yet
	// unasked: something that nobody had asked for. An answer may be on its way to names
	// that were given up on this stream (H-32); nil: to none, and if they are too many to
	// remember, to any.
	unasked bool
	givenUp map[string]struct{}
	// kept are those resources, the longest unchanged first, and by is the name under
	// which one that has aliases is kept.
	kept *simplelru.LRU[string, cache.Received]
	by   map[string]string
	// gone are the names of resources that are not here any more, though upstream has
	// not removed them; all: they are too many to remember.
	gone map[string]struct{}
	all  bool
	// early are resources that may be old answers (H-1). The stream that showed them may
	// not show them again.
	early map[string]struct{}
}

// remembers: there is something to know of the stream, as long as it lives.
func (s *shown) remembers() bool { return s.unasked || s.all || len(s.gone)+len(s.givenUp) > 0 }

// hears takes in what the stream says on the lane of names of a full-state type, before it is applied.
func (s *shown) hears(u *cache.Update) {
	if u.Stream == 0 {
		return
	}
	s.begin(u.Stream)
	if u.Full && s.kept != nil {
		s.keepOnly(u)
	}
	for _, name := range u.Removed {
		s.unkeep(name)
		delete(s.gone, name)
	}
	for _, e := range u.Errors {
		if e.Status.GetCode() == cache.NotFound {
			s.unkeep(e.Name)
			delete(s.gone, e.Name)
		}
	}
	for _, r := range u.Set {
		delete(s.early, r.Name)
		s.unkeep(r.Name) // there is a newer one, here or in the Table
		delete(s.gone, r.Name)
	}
}

// begin notes which stream carries a full-state type's names: it has said something, or was
// shown versions, so that what has them counts as delivered.
func (s *shown) begin(stream uint64) {
	if s.stream != 0 && s.stream != stream {
		s.end()
	}
	s.stream = stream
}

// keepOnly drops what a response with all there is does not list.
func (s *shown) keepOnly(u *cache.Update) {
	listed := make(map[string]struct{}, len(u.Set)+len(u.Kept))
	for _, r := range u.Set {
		listed[r.Name] = struct{}{}
	}
	for _, name := range u.Kept {
		listed[name] = struct{}{}
	}
	for _, name := range s.kept.Keys() {
		if _, ok := listed[name]; !ok {
			s.unkeep(name)
		}
	}
}

// take takes in a resource that nobody has asked for. It reports how many go for
// that: this one, if it is not kept, and those that make room for it.
func (s *shown) take(r cache.Received) (dropped int) {
	if s.stream == 0 || s.hub.config.Unasked == nil {
		return 1
	}
	if s.unasked = s.unasked || !s.late(r.Resource); s.unasked {
		return s.keep(r)
	}
	s.goes(r.Name)
	return 1
}

// giveUp remembers a name that is given up.
func (s *shown) giveUp(name string) {
	if s.givenUp == nil {
		s.givenUp = make(map[string]struct{})
	}
	if len(s.givenUp) < s.hub.bounds.Gone {
		s.givenUp[name] = struct{}{}
	}
}

// late: a resource may be the answer to a name that was given up on this stream.
func (s *shown) late(r *cache.Resource) bool {
	return len(s.givenUp) >= s.hub.bounds.Gone || goesBy(r, func(name string) bool {
		_, givenUp := s.givenUp[name]
		return givenUp
	})
}

// keep keeps a resource, if there is room, and reports how many go.
func (s *shown) keep(r cache.Received) (dropped int) {
	budget := s.hub.config.Unasked
	if r.TTL != 0 || r.DoNotCache || r.Negative || int64(r.Size()) > budget.max.Load() {
		s.goes(r.Name) // it is asked for again when somebody wants it
		return 1
	}
	if s.kept == nil {
		// The only error is a size below one. How many there may be is a matter of bytes.
		s.kept, _ = simplelru.NewLRU(int(^uint(0)>>1), func(name string, r cache.Received) { s.unkept(r) })
		s.by = make(map[string]string)
	}
	s.unkeep(r.Name)
	shared := budget.take(r.Resource)
	for shared == nil && s.makeRoom() {
		shared = budget.take(r.Resource)
		dropped++
	}
	if shared == nil {
		s.goes(r.Name)
		return dropped + 1
	}
	r.Resource = shared
	s.kept.Add(r.Name, r)
	for _, alias := range r.Aliases {
		s.by[alias] = r.Name
	}
	s.hub.unasked.Add(int64(r.Size()))
	for s.hub.unasked.Load() > budget.max.Load() && s.makeRoom() {
		dropped++
	}
	return dropped
}

// release takes in bodies that nobody wants any more. Where upstream shows what nobody
// has asked for they join that; else they go (UP-8).
func (s *shown) release(bodies []cache.Received) {
	for _, b := range bodies {
		switch {
		case s.table.Has(b.Name):
		case s.unasked:
			s.keep(b)
		default:
			s.goes(b.Name)
		}
	}
}

// makeRoom drops what has not changed for longest. It looks at this type alone: each
// has a lock of its own.
func (s *shown) makeRoom() bool {
	name, _, ok := s.kept.RemoveOldest()
	if ok {
		s.goes(name)
	}
	return ok
}

// unkeep drops a resource from those that are kept.
func (s *shown) unkeep(name string) {
	if s.kept != nil {
		s.kept.Remove(name)
	}
}

// unkept gives back what was kept.
func (s *shown) unkept(r cache.Received) {
	for _, alias := range r.Aliases {
		if s.by[alias] == r.Name {
			delete(s.by, alias)
		}
	}
	s.hub.unasked.Add(-int64(r.Size()))
	s.hub.config.Unasked.leave(r.Resource)
}

// goes remembers that upstream has shown a resource, and that it is not here any more.
func (s *shown) goes(name string) {
	switch {
	case s.stream == 0 || s.all || s.table.Origin().SotW: // SotW answers every request
	case len(s.gone) >= s.hub.bounds.Gone:
		s.gone, s.all = nil, true
	default:
		if s.gone == nil {
			s.gone = make(map[string]struct{})
		}
		s.gone[name] = struct{}{}
	}
}

// has: upstream has shown a name on a stream, has not removed it since, and it is
// not here: that the stream says nothing of it any more means nothing (UP-19).
func (s *shown) has(name string, stream uint64) bool {
	if s.stream == 0 || s.stream != stream {
		return false
	}
	_, gone := s.gone[name]
	return gone || s.all
}

// recall hands over what is kept under a name that somebody asks for.
func (s *shown) recall(name string) (r cache.Received, ok bool) {
	if s.kept == nil {
		return r, false
	}
	if by, ok := s.by[name]; ok {
		name = by
	}
	if r, ok = s.kept.Peek(name); ok {
		s.unkeep(name)
	}
	return r, ok
}

// mayBeOld notes a resource that may be an old answer.
func (s *shown) mayBeOld(name string) {
	if s.early == nil {
		s.early = make(map[string]struct{})
	}
	s.early[name] = struct{}{} // no more than the Table has
}

// end forgets what a stream has shown.
func (s *shown) end() {
	if s.kept != nil {
		s.kept.Purge()
	}
	*s = shown{hub: s.hub, table: s.table}
}

// Over says that a stream has ended.
func (h *Hub) Over(stream uint64) {
	for _, x := range h.types.all() {
		x.mu.Lock()
		if x.shown.stream == stream || x.shown.stream == 0 {
			x.shown.end()
		}
		x.mu.Unlock()
		h.types.drop(x.url)
	}
}

// Close gives back what the group holds together with others. The Hub is not to be used
// after it.
func (h *Hub) Close() {
	for x := range h.types.locked() {
		x.shown.end()
	}
}
