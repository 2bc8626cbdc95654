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
	stream uint64 // zero: nothing yet
	// unasked: something that nobody had asked for. An answer may be on its way to names
	// that were given up on this stream, which are left (H-32); nil: to none, and if they
	// are too many to remember, to any.
	unasked bool
	left    map[string]struct{}
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
func (s *shown) remembers() bool { return s.unasked || s.all || len(s.gone)+len(s.left) > 0 }

// show takes in an Update on the lane of names, before it is applied.
func (x *index) show(u *cache.Update) {
	if u.Stream == 0 || !x.hub.Properties(x.url).FullState {
		return
	}
	x.shows(u.Stream)
	if u.Full && x.shown.kept != nil {
		x.keepOnly(u)
	}
	for _, name := range u.Removed {
		x.unkeep(name)
		delete(x.shown.gone, name)
	}
	for _, e := range u.Errors {
		if e.Status.GetCode() == cache.NotFound {
			x.unkeep(e.Name)
			delete(x.shown.gone, e.Name)
		}
	}
	for _, r := range u.Set {
		delete(x.shown.early, r.Name)
		x.unkeep(r.Name) // there is a newer one, here or in the Table
		delete(x.shown.gone, r.Name)
	}
}

// shows notes which stream carries a full-state type's names: it has said something, or was
// shown versions, so that what has them counts as delivered.
func (x *index) shows(stream uint64) {
	if x.shown.stream != 0 && x.shown.stream != stream {
		x.unshow()
	}
	x.shown.stream = stream
}

// keepOnly drops what a response with all there is does not list.
func (x *index) keepOnly(u *cache.Update) {
	listed := make(map[string]struct{}, len(u.Set)+len(u.Kept))
	for _, r := range u.Set {
		listed[r.Name] = struct{}{}
	}
	for _, name := range u.Kept {
		listed[name] = struct{}{}
	}
	for _, name := range x.shown.kept.Keys() {
		if _, ok := listed[name]; !ok {
			x.unkeep(name)
		}
	}
}

// keepUnasked takes in a resource that nobody has asked for. It reports how many go for
// that: this one, if it is not kept, and those that make room for it.
func (x *index) keepUnasked(r cache.Received) (dropped int) {
	if x.shown.stream == 0 || x.hub.config.Unasked == nil {
		return 1
	}
	if x.shown.unasked = x.shown.unasked || !x.left(r.Resource); x.shown.unasked {
		return x.keep(r)
	}
	x.goes(r.Name)
	return 1
}

// leaves remembers a name that is given up.
func (x *index) leaves(name string) {
	if x.shown.left == nil {
		x.shown.left = make(map[string]struct{})
	}
	if len(x.shown.left) < x.hub.bounds.Gone {
		x.shown.left[name] = struct{}{}
	}
}

// left: a resource may be the answer to a name that was given up on this stream.
func (x *index) left(r *cache.Resource) bool {
	return len(x.shown.left) >= x.hub.bounds.Gone || goesBy(r, func(name string) bool {
		_, left := x.shown.left[name]
		return left
	})
}

// keep keeps a resource, if there is room, and reports how many go.
func (x *index) keep(r cache.Received) (dropped int) {
	budget := x.hub.config.Unasked
	if r.TTL != 0 || r.DoNotCache || r.Negative || int64(r.Size()) > budget.max.Load() {
		x.goes(r.Name) // it is asked for again when somebody wants it
		return 1
	}
	if x.shown.kept == nil {
		// The only error is a size below one. How many there may be is a matter of bytes.
		x.shown.kept, _ = simplelru.NewLRU(int(^uint(0)>>1), func(name string, r cache.Received) { x.unkept(r) })
		x.shown.by = make(map[string]string)
	}
	x.unkeep(r.Name)
	shared := budget.take(r.Resource)
	for shared == nil && x.makeRoom() {
		shared = budget.take(r.Resource)
		dropped++
	}
	if shared == nil {
		x.goes(r.Name)
		return dropped + 1
	}
	r.Resource = shared
	x.shown.kept.Add(r.Name, r)
	for _, alias := range r.Aliases {
		x.shown.by[alias] = r.Name
	}
	x.hub.unasked.Add(int64(r.Size()))
	for x.hub.unasked.Load() > budget.max.Load() && x.makeRoom() {
		dropped++
	}
	return dropped
}

// bodies are the resources that a name leads to, if what becomes of them matters.
func (x *index) bodies(id cache.ID) (bodies []cache.Received) {
	if x.shown.stream == 0 {
		return nil
	}
	for _, r := range x.named.Answer(id).Resources() {
		if !x.named.Confirmed(r.Name) {
			continue // this stream knows nothing of it
		}
		own, _ := x.named.Find(r.Name)
		b := cache.Received{Resource: r, Upstream: x.named.Upstream(own)}
		if ends, _, _ := x.named.Ends(own); !ends.IsZero() || x.loaded(r) {
			b.TTL = 1 // it is not kept
		}
		bodies = append(bodies, b)
	}
	return bodies
}

// givenUp takes in bodies that nobody wants any more. Where upstream shows what nobody
// has asked for they join that; else they go (UP-8).
func (x *index) givenUp(bodies []cache.Received) {
	for _, b := range bodies {
		switch {
		case x.named.Has(b.Name):
		case x.shown.unasked:
			x.keep(b)
		default:
			x.goes(b.Name)
		}
	}
}

// makeRoom drops what has not changed for longest. It looks at this type alone: each
// has a lock of its own.
func (x *index) makeRoom() bool {
	name, _, ok := x.shown.kept.RemoveOldest()
	if ok {
		x.goes(name)
	}
	return ok
}

// unkeep drops a resource from those that are kept.
func (x *index) unkeep(name string) {
	if x.shown.kept != nil {
		x.shown.kept.Remove(name)
	}
}

// unkept gives back what was kept.
func (x *index) unkept(r cache.Received) {
	for _, alias := range r.Aliases {
		if x.shown.by[alias] == r.Name {
			delete(x.shown.by, alias)
		}
	}
	x.hub.unasked.Add(-int64(r.Size()))
	x.hub.config.Unasked.leave(r.Resource)
}

// goes remembers that upstream has shown a resource, and that it is not here any more.
func (x *index) goes(name string) {
	switch {
	case x.shown.stream == 0 || x.shown.all || x.named.Origin().SotW: // SotW answers every request
	case len(x.shown.gone) >= x.hub.bounds.Gone:
		x.shown.gone, x.shown.all = nil, true
	default:
		if x.shown.gone == nil {
			x.shown.gone = make(map[string]struct{})
		}
		x.shown.gone[name] = struct{}{}
	}
}

// wasShown: upstream has shown a name on a stream, has not removed it since, and it is
// not here: that the stream says nothing of it any more means nothing (UP-19).
func (x *index) wasShown(name string, stream uint64) bool {
	if x.shown.stream == 0 || x.shown.stream != stream {
		return false
	}
	_, gone := x.shown.gone[name]
	return gone || x.shown.all
}

// recall puts into the Table what is kept under a name that somebody asks for.
func (x *index) recall(name string) {
	if x.shown.kept == nil {
		return
	}
	if by, ok := x.shown.by[name]; ok {
		name = by
	}
	r, ok := x.shown.kept.Peek(name)
	if !ok {
		return
	}
	x.unkeep(name)
	_, _ = x.named.Set(r.Resource, r.Upstream, x.next(), nil)
}

// mayBeOld notes a resource that may be an old answer.
func (x *index) mayBeOld(name string) {
	if x.shown.early == nil {
		x.shown.early = make(map[string]struct{})
	}
	x.shown.early[name] = struct{}{} // no more than the Table has
}

// Early are those of some names of which the copy may be an old answer on the stream that
// carries them, which will not say it again (UP-19), and the rest.
func (h *Hub) Early(t cache.TypeURL, names []string, stream uint64) (early, rest []string) {
	rest = names
	h.look(t, func(x *index) {
		if x.shown.stream != stream || len(x.shown.early) == 0 {
			return
		}
		rest = nil
		for _, name := range names {
			if _, old := x.shown.early[name]; old {
				early = append(early, name)
			} else {
				rest = append(rest, name)
			}
		}
	})
	return early, rest
}

// unshow forgets what a stream has shown.
func (x *index) unshow() {
	if x.shown.kept != nil {
		x.shown.kept.Purge()
	}
	x.shown = shown{}
}

// Over says that a stream has ended.
func (h *Hub) Over(stream uint64) {
	for _, x := range h.all() {
		x.mu.Lock()
		if x.shown.stream == stream || x.shown.stream == 0 {
			x.unshow()
		}
		x.mu.Unlock()
		h.drop(x)
	}
}

// Close gives back what the group holds together with others. The Hub is not to be used
// after it.
func (h *Hub) Close() {
	for _, x := range h.all() {
		x.mu.Lock()
		x.unshow()
		x.mu.Unlock()
	}
}

// Shows reports whether the stream that carries a type's names has shown something that
// nobody had asked for.
func (h *Hub) Shows(t cache.TypeURL) (shows bool) {
	h.look(t, func(x *index) { shows = x.shown.unasked })
	return shows
}

// Kept is how many bytes of resources the group keeps that nobody has asked for.
func (h *Hub) Kept() int64 { return h.unasked.Load() }
