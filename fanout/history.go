package fanout

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/xds-relay/xds-relay/cache"
)

// History keeps, for people, the resources that were replaced or removed last, in all groups that share it:
// of each the latest of its former versions. It has no resources of secret types, and none that must not be
// cached (VALID-5).
type History struct {
	most    atomic.Int64 // bytes
	mu      sync.Mutex
	bytes   int64
	entries map[former]*list.Element
	order   list.List // of replaced, oldest first
}

// former is a name on a lane of a group.
type former struct {
	hub  *Hub
	lane Lane
	name string
}

type replaced struct {
	former
	resource *cache.Resource
}

// NewHistory returns a History of at most so many bytes.
func NewHistory(most int) *History {
	h := &History{entries: make(map[former]*list.Element)}
	h.most.Store(int64(most))
	return h
}

// Resize changes how many bytes there may be.
func (h *History) Resize(most int) {
	h.most.Store(int64(most))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shrink()
}

func (h *History) note(f former, r *cache.Resource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(h.entries[f])
	h.entries[f] = h.order.PushBack(replaced{f, r})
	h.bytes += sizeInHistory(r)
	h.shrink()
}

// sizeInHistory is what a resource takes there; the names are shared with others.
func sizeInHistory(r *cache.Resource) int64 {
	const record = 256
	return int64(r.Size() + record)
}

func (h *History) shrink() {
	for h.bytes > h.most.Load() && h.order.Len() > 0 {
		h.drop(h.order.Front())
	}
}

func (h *History) drop(e *list.Element) {
	if e == nil {
		return
	}
	gone, _ := h.order.Remove(e).(replaced)
	delete(h.entries, gone.former)
	h.bytes -= sizeInHistory(gone.resource)
}

// leave drops what a group has there.
func (h *History) leave(hub *Hub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f, e := range h.entries {
		if f.hub == hub {
			h.drop(e)
		}
	}
}

// before returns the former version of a resource, or nil if it is not there any more.
func (h *History) before(f former) *cache.Resource {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.entries[f]; e != nil {
		r, _ := e.Value.(replaced)
		return r.resource
	}
	return nil
}

// former notes a resource that is about to be replaced or removed.
func (x *index) former(t *cache.Table, r *cache.Resource) {
	h := x.hub.config.History
	if h == nil || h.most.Load() == 0 {
		return
	}
	if !r.DoNotCache && !x.hub.Properties(x.url).Secret {
		h.note(former{x.hub, Lane{x.url, t == &x.wildcard.Table}, r.Name}, r)
	}
}
