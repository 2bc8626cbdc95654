package fanout

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// maxArrivals bounds how many responses a group remembers the time of.
const maxArrivals = 4096

// arrivals remembers when the latest responses of upstream came, so that a position in the order of
// changes can be told as a time.
type arrivals struct {
	mu sync.Mutex
	// ring is in order of position from oldest on, and before that the rest.
	ring   []arrival
	oldest int
}

// arrival is a response, and the last change that it made.
type arrival struct {
	upTo cache.Seq
	at   int64 // Unix time in ns
}

// note notes a response that may have made changes, up to a position. Of two that come at once, for two types, the
// time of one stands for both.
func (a *arrivals) note(upTo cache.Seq, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.ring)
	if n > 0 && a.ring[(a.oldest+n-1)%n].upTo >= upTo {
		return
	}
	now := arrival{upTo, at.UnixNano()}
	if n < maxArrivals {
		a.ring = append(a.ring, now)
		return
	}
	a.ring[a.oldest] = now
	a.oldest = (a.oldest + 1) % n
}

// Arrived returns when the response came that made a change, or by when it had come, if that is too long
// ago to be known exactly. The zero time stands for a change that no response made.
func (h *Hub) Arrived(change cache.Seq) (at time.Time, exact bool) {
	a := &h.arrivals
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearchFunc(a.ring[a.oldest:], change, arrival.compare)
	if i += a.oldest; i == len(a.ring) {
		if i, _ = slices.BinarySearchFunc(a.ring[:a.oldest], change, arrival.compare); i == a.oldest {
			return time.Time{}, false
		}
	}
	return time.Unix(0, a.ring[i].at), i != a.oldest || len(a.ring) < maxArrivals
}

func (a arrival) compare(change cache.Seq) int { return cmp.Compare(a.upTo, change) }
