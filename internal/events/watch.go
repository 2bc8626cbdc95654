package events

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Message is a request of a client, or a response to it, without bodies. That of a unary call is on stream 0.
type Message struct {
	Time   time.Time     `json:"time"`
	Stream uint64        `json:"stream"`
	Node   string        `json:"node"`
	Kind   MessageKind   `json:"kind"`
	Type   cache.TypeURL `json:"type"`
	Nonce  string        `json:"nonce,omitempty"`
	// Version is a SotW version, or a Delta response's; that of a secret type is hidden.
	Version string `json:"version,omitempty"`
	// Names are the first that are asked for, sent, or removed, and the numbers say how many these are.
	Names       []string `json:"names,omitempty"`
	Asked       int      `json:"asked,omitempty"`
	Unsubscribe int      `json:"unsubscribe,omitempty"`
	Resources   int      `json:"resources,omitempty"`
	Removed     int      `json:"removed,omitempty"`
	Errors      int      `json:"errors,omitempty"`
	// Bytes is the size before compression and TLS.
	Bytes int `json:"bytes"`
	// Nack is what the client says of a response that it rejects.
	Nack string `json:"nack,omitempty"`
}

// MessageKind is what a Message is: a kind of request (initial, subscribe, ack, nack, fetch, or refused), or a response.
type MessageKind string

// Response is the MessageKind of what is sent to a client.
const Response MessageKind = "response"

// Watch shows Messages to those who watch. While nobody does, it costs one read of a number for each message. A nil
// Watch shows nothing. Its methods may be called from any goroutine, and none but Next blocks.
type Watch struct {
	watched  atomic.Int32
	mu       sync.Mutex
	watchers map[*Watcher]struct{}
}

// MostWatchers bounds those who watch at once, and MostMessages what one of them has not read yet.
const (
	MostWatchers = 8
	MostMessages = 1000
)

// ErrWatched: as many watch as may.
var ErrWatched = errors.New("8 watch already, and no more may; end one of them")

// NewWatch returns a Watch that nobody watches.
func NewWatch() *Watch { return &Watch{watchers: make(map[*Watcher]struct{})} }

// Filter says which messages one wants to see; what is zero is no condition.
type Filter struct {
	Stream uint64
	Node   string
	Type   cache.TypeURL
}

func (f Filter) takes(stream uint64, node string, t cache.TypeURL) bool {
	return (f.Stream == 0 || f.Stream == stream) && (f.Node == "" || f.Node == node) && (f.Type == "" || f.Type == t)
}

// Watched reports whether anybody watches.
func (w *Watch) Watched() bool { return w != nil && w.watched.Load() > 0 }

// Wants reports whether somebody wants to see a message of a client, so that it is to be made at all.
func (w *Watch) Wants(stream uint64, node string, t cache.TypeURL) bool {
	if !w.Watched() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.watchers {
		if one.filter.takes(stream, node, t) {
			return true
		}
	}
	return false
}

// Show shows a message to those who want to see it.
func (w *Watch) Show(m Message) {
	m.Time = time.Now()
	m.Node, m.Nack, m.Names = clip(m.Node, maxName), clip(m.Nack, maxMessage), clipAll(m.Names)
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.watchers {
		if one.filter.takes(m.Stream, m.Node, m.Type) {
			one.take(m)
		}
	}
}

// Watcher is one who watches.
type Watcher struct {
	of     *Watch
	filter Filter
	wake   chan struct{} // one slot

	// Guarded by the Watch's mutex.
	unread []Message
	lost   int // the oldest, for want of room
}

// Add returns a Watcher of what a filter takes, or ErrWatched. Close it in the end.
func (w *Watch) Add(f Filter) (*Watcher, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.watchers) >= MostWatchers {
		return nil, ErrWatched
	}
	one := &Watcher{of: w, filter: f, wake: make(chan struct{}, 1)}
	w.watchers[one] = struct{}{}
	w.watched.Add(1)
	return one, nil
}

// Close ends it.
func (o *Watcher) Close() {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	delete(o.of.watchers, o)
	o.of.watched.Add(-1)
}

func (o *Watcher) take(m Message) {
	if len(o.unread) == MostMessages {
		half := o.unread[MostMessages/2:] // one move for many messages
		o.lost += MostMessages - len(half)
		o.unread = append(o.unread[:0], half...)
	}
	o.unread = append(o.unread, m)
	poke(o.wake)
}

// Next waits for messages, and returns them, and how many were lost before them. It returns nothing when a time is over, or the
// context.
func (o *Watcher) Next(ctx context.Context, within time.Duration) (messages []Message, lost int) {
	end := time.NewTimer(within)
	defer end.Stop()
	for {
		o.of.mu.Lock()
		messages, lost = o.unread, o.lost
		o.unread, o.lost = nil, 0
		o.of.mu.Unlock()
		if len(messages) > 0 {
			return messages, lost
		}
		select {
		case <-o.wake:
		case <-end.C:
			return nil, 0
		case <-ctx.Done():
			return nil, 0
		}
	}
}
