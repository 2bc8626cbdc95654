package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// insisted are the subscriptions of a lane that were begun again for the sake of a body
// (VALID-5). Some servers answer the unsubscribe with a removal, which is none for the clients
// that have the resource: it counts only if the subscribe that follows has no other answer
// for as long as the one before had (UP-19).
type insisted struct {
	// until are the names, with the time at which a removal is one again.
	until map[string]time.Time
	// removed are those that were removed meanwhile, and when that counts. With the
	// wildcard it may be any.
	removed map[string]time.Time
	// lookAt is when to look at them, or zero.
	lookAt time.Time
}

// begin notes that a name is unsubscribed and subscribed.
func (i *insisted) begin(name string, now time.Time) {
	if i.until == nil {
		i.until, i.removed = make(map[string]time.Time), make(map[string]time.Time)
	}
	i.until[name] = now.Add(insistAfter)
	i.lookAt = earlier(i.lookAt, now.Add(insistAfter))
}

// answers takes note of the names that a response answers, and takes out removals that may
// be no answer.
func (i *insisted) answers(u *cache.Update) {
	if len(i.until)+len(i.removed) == 0 {
		return
	}
	answered(u, func(name string) {
		delete(i.until, name)
		delete(i.removed, name)
	})
	u.Removed = slices.DeleteFunc(u.Removed, func(name string) bool {
		until, doubtful := i.until[name]
		if all, wildcard := i.until[fanout.Wildcard]; wildcard {
			until, doubtful = all, true
		}
		if doubtful {
			i.removed[name] = until
		}
		return doubtful
	})
}

// over are the removals that count by now.
func (i *insisted) over(now time.Time) (removed []string) {
	if i.lookAt.IsZero() || i.lookAt.After(now) {
		return nil
	}
	i.lookAt = time.Time{}
	for name, at := range i.removed {
		if !at.After(now) {
			removed = append(removed, name)
			delete(i.removed, name)
		} else {
			i.lookAt = earlier(i.lookAt, at)
		}
	}
	for name, at := range i.until {
		if !at.After(now) {
			delete(i.until, name)
		} else {
			i.lookAt = earlier(i.lookAt, at)
		}
	}
	slices.Sort(removed)
	return removed
}
